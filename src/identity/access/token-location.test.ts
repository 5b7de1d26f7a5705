/**
 * What a policy reads as a credential is what backends do not get: in each place, under each spelling of its name, and
 * beside other values of the same name.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { Random } from "../../../test/support/random.ts";
import { compileExpression } from "../../cel/expression.ts";
import type { Exchange } from "../../core/exchange.ts";
import { HeaderList } from "../../http/headers.ts";
import { createTokenReader, type TokenLocation } from "./token-location.ts";
import { withholdCredentials } from "./withheld-credentials.ts";

const RUNS = 3_000;
const SECRET = "planted-credential-0123456789";
const OTHER = "another-value-0123456789";

const LOCATIONS: Readonly<Record<string, TokenLocation>> = {
  "a parameter": { queryParameter: { name: "key" } },
  "a parameter with a dot": { queryParameter: { name: "api.key~1" } },
  "a header": { header: { name: "x-key" } },
  "a header with a scheme": { header: { name: "authorization", prefix: "Bearer " } },
  "a cookie": { cookie: { name: "key" } },
  "an expression of a header": { expression: 'request.headers["x-key"]' },
  "an expression of the query": {
    expression: 'request.pathAndQuery.split("key=")[1].split("&")[0]',
  },
  "an expression of any parameter": { expression: `request.pathAndQuery.contains("${SECRET}") ? "${SECRET}" : ""` },
  "an expression of a cookie": { expression: 'request.headers["cookie"].split("key=")[1].split(";")[0]' },
};

const FIELDS = ["key", "api.key~1", "KEY", "keys", "other"];

/** Spellings that servers decode to the same name. */
function spelled(name: string, random: Random): string {
  const escaped = (char: string): string => {
    const hex = char.charCodeAt(0).toString(16);
    return `%${random.oneIn(2) ? hex : hex.toUpperCase()}`;
  };
  return [...name].map((char) => (random.oneIn(6) ? escaped(char) : char)).join("");
}

function queryOf(random: Random): string {
  const parts = random.list(4, () => {
    const value = random.pick([SECRET, OTHER, `x${SECRET}`, "", encodeURIComponent(`${SECRET}/+`)]);
    return random.pick([`${spelled(random.pick(FIELDS), random)}=${value}`, "", "key", "=", "a=1"]);
  });
  return parts.join("&");
}

function headersOf(random: Random): HeaderList {
  const value = (): string => random.pick([SECRET, OTHER, `Bearer ${SECRET}`, `bearer  ${SECRET}`, `Basic ${SECRET}`]);
  const cookie = (): string => `${random.pick(["key", "KEY", "other"])}=${random.pick([SECRET, OTHER, ""])}`;
  const headers = new HeaderList([]);
  for (const name of random.list(3, () => random.pick(["x-key", "authorization", "x-other"])))
    headers.add(name, value());
  for (const line of random.list(2, () => random.list(3, cookie).join("; ")))
    if (line !== "") headers.add("cookie", line);
  return headers;
}

function exchangeWith(query: string, headers: HeaderList): Exchange {
  const exchange = anExchange({ query });
  for (let i = 0; i < headers.pairs.length; i += 2)
    exchange.request.headers.add(headers.pairs[i] as string, headers.pairs[i + 1] as string);
  return exchange;
}

/** Every value under a name that a server could read as that of the credential. */
function valuesSent({ request }: Exchange, location: TokenLocation): readonly string[] {
  const { headers, query } = request;
  if ("queryParameter" in location) return new URLSearchParams(`&${query}`).getAll(location.queryParameter.name);
  if ("header" in location) return headers.getAll(location.header.name);
  if ("cookie" in location)
    return headers
      .getAll("cookie")
      .flatMap((line) => line.split("; "))
      .filter((pair) => pair.startsWith(`${location.cookie.name}=`));
  // An expression does not tell the place, so no place has the credential.
  return [...headers.pairs, ...[...new URLSearchParams(`&${query}`)].flat()].filter((text) => text.includes(SECRET));
}

for (const [name, location] of Object.entries(LOCATIONS))
  test(`a credential in ${name} that a policy reads is sent under no spelling, in ${RUNS} random requests`, () => {
    const reader = createTokenReader(location, compileExpression);
    let found = 0;
    for (let seed = 0; seed < RUNS; seed++) {
      const random = new Random(seed);
      const exchange = exchangeWith(queryOf(random), headersOf(random));
      const { query } = exchange.request;
      const before = exchange.request.headers.pairs.slice();
      const others = exchange.request.headers.getAll("x-other");
      const read = reader.read(exchange);
      if (read.kind !== "found" || ("expression" in location && read.value !== SECRET)) continue;
      found += 1;
      reader.withhold(exchange, false);
      withholdCredentials(exchange, exchange.request);
      const shown = JSON.stringify({ seed, query, before, sent: exchange.request.query });
      assert.deepEqual(valuesSent(exchange, location), [], shown);
      // Everything else is sent as it was received.
      const unnamed = (text: string): string[] => text.split("&").filter((part) => ["", "=", "a=1"].includes(part));
      if (exchange.request.query !== "") assert.deepEqual(unnamed(exchange.request.query), unnamed(query), shown);
      if (!others.some((text) => text.includes(SECRET)))
        assert.deepEqual(exchange.request.headers.getAll("x-other"), others, shown);
    }
    assert.ok(found > RUNS / 100, `${found} credentials`);
  });

/** A second spelling would be a second credential, of which the gateway and a backend could each read another one. */
const PARAMETERS: readonly (readonly [query: string, kind: string])[] = [
  [`key=${SECRET}`, "found"],
  [`a=1&key=${SECRET}&b=2`, "found"],
  [`%6bey=${SECRET}`, "none"],
  [`k%65y=${SECRET}`, "none"],
  [`%6B%65%79=${SECRET}`, "none"],
  [`KEY=${SECRET}`, "none"],
  [`+key=${SECRET}`, "none"],
  [`key%20=${SECRET}`, "none"],
  [`?key=${SECRET}`, "none"],
  [`keys=${SECRET}`, "none"],
  [`key=${SECRET}&key=${SECRET}`, "bad"],
  [`key=${SECRET}&key=`, "bad"],
  [`key=${SECRET}&key`, "bad"],
  ["key=", "bad"],
  ["key", "bad"],
  ["", "none"],
];

test("a credential in a parameter is read under its plain name only, and only if it is there once", () => {
  const reader = createTokenReader({ queryParameter: { name: "key" } }, compileExpression);
  for (const [query, kind] of PARAMETERS) {
    const read = reader.read(anExchange({ query }));
    assert.equal(read.kind, kind, query);
    if (read.kind === "found") assert.equal(read.value, SECRET, query);
  }
});
