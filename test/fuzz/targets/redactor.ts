/**
 * A secret at a place where secrets stand never comes out: not as it is, not in base64 and not percent-encoded, in
 * headers, queries, bodies, URLs, process arguments, expressions and configuration. What stands beside it under an
 * ordinary name is unchanged, and what was redacted once passes unchanged a second time.
 */
import { z } from "zod";
import { shownConfig } from "../../../src/config/schema/shown-config.ts";
import { secret } from "../../../src/core/schema.ts";
import {
  createRedaction,
  redactArguments,
  redactBody,
  redactJson,
  redactQuery,
  redactText,
  redactUrl,
  withoutSecrets,
} from "../../../src/record/trace/redact.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

type Input = {
  readonly place: string;
  readonly before: string;
  readonly secret: string;
  readonly after: string;
  /** A name that says that its value is a credential. */
  readonly name?: string;
  /** What stands under an ordinary name beside it. */
  readonly kept?: string;
};

const ORDINARY = ["max_tokens", "idempotency-key", "color", "page", "monkey", "x-team", "author", "token_type"];

const redaction = createRedaction(["x-internal-token"]);
redaction.hideAlso({ headers: ["x-team-key"], parameters: ["team_key"] });
const SCHEMA = z.strictObject({
  key: secret(),
  nested: z.array(z.strictObject({ token: secret().optional(), url: z.string() })),
});

/** By place: what is shown of a secret that stands there. */
const PLACES: Readonly<Record<string, (input: Input) => string>> = {
  header: ({ secret: value, before }) =>
    ["authorization", "cookie", "set-cookie", "x-api-key", "x-internal-token", "x-team-key", "proxy-authorization"]
      .map((name) => JSON.stringify(redaction.headers([name, `${before}${value}`, "x", "y", name, value])))
      .join(),
  quoted: ({ secret: value, before, after }) =>
    redaction.scrub(`${before}${value}${after}`, ["authorization", `Bearer ${value}`]),
  location: ({ secret: value, before, after }) =>
    JSON.stringify(
      redaction.headers([
        "location",
        `https://a.example/cb?x=${encodeURIComponent(before)}&code=${encodeURIComponent(value)}&y=${encodeURIComponent(after)}`,
      ]),
    ),
  query: ({ secret: value, before, after }) =>
    ["access_token", "key", "API_KEY", "%61ccess_token", "client_secret", "code"]
      .map((name) =>
        redactQuery(
          `${encodeURIComponent(before)}=1&${name}=${encodeURIComponent(value)}&x=${encodeURIComponent(after)}`,
        ),
      )
      .join("\n") + redaction.query(`team_key=${encodeURIComponent(value)}`),
  form: ({ secret: value, after }) =>
    ["client_secret", "code", "password", "refresh_token", "%70assword", "Password"]
      .map((name) =>
        redactBody(
          Buffer.from(`a=${encodeURIComponent(after)}&${name}=${encodeURIComponent(value)}`),
          "application/x-www-form-urlencoded",
        ).toString(),
      )
      .join("\n"),
  json: ({ secret: value, after }) =>
    ["access_token", "id_token", "client_secret", "refresh_token", "password"]
      .map((name) =>
        redactBody(
          Buffer.from(JSON.stringify({ x: after, [name]: value, y: 1 }, undefined, after.length % 3)),
          "application/json",
        ).toString("utf8"),
      )
      .join("\n"),
  "url password": ({ secret: value, after }) =>
    redactUrl(`https://user:${value.replace(/[/?#]/g, "")}@host.example/${encodeURIComponent(after)}`),
  "url parameter": ({ secret: value }) => redactUrl(`https://host.example/a?x=1&${"any"}=${encodeURIComponent(value)}`),
  config: ({ secret: value }) =>
    JSON.stringify(
      shownConfig(
        SCHEMA,
        { key: value, nested: [{ token: value, url: `https://u:${encodeURIComponent(value)}@h/` }] },
        redaction,
      ),
    ),
  "named header": ({ secret: value, name = "token", kept = "" }) => {
    const shown = redaction.headers([name.toLowerCase(), value, ...ORDINARY.flatMap((one) => [one, kept])]);
    for (const one of ORDINARY) expectKept(shown[one], kept, one);
    return JSON.stringify(shown);
  },
  "named parameter": ({ secret: value, name = "token", kept = "" }) => {
    const ordinary = ORDINARY.map((one) => `${one}=${kept}`).join("&");
    const shown = twice(redactQuery, `${ordinary}&${name}=${encodeURIComponent(value)}&${ordinary}`);
    expect(shown === `${ordinary}&${name}=<redacted>&${ordinary}`, `an ordinary parameter changed: ${shown}`);
    return shown;
  },
  "named member": ({ secret: value, name = "token", kept = "", after }) => {
    const ordinary = Object.fromEntries(ORDINARY.map((one) => [one, kept]));
    const inner = [value, [value, 1], { x: { y: value } }, `${value}`][after.length % 4];
    const text = JSON.stringify({ ...ordinary, [name]: inner, z: kept }, undefined, after.length % 3);
    const found: string[] = [];
    const shown = redactJson(text, found);
    expect(redactJson(shown) === shown, `not the same the second time: ${shown}`);
    expectSame(JSON.parse(shown), { ...ordinary, [name]: "<redacted>", z: kept }, "ordinary members");
    expect(found.includes(value), "the hidden value was not found");
    // Cut off anywhere, as a captured body may be, and as a text inside of another.
    return [
      shown,
      redactJson(text.slice(0, text.length - (after.length % 5))),
      twice(redactJson, JSON.stringify({ text })),
      redactText(text),
    ].join("\n");
  },
  argument: ({ secret: value, name = "token", kept = "" }) => {
    const words = value.replace(/^-+|[\n]/g, "");
    const args = ["--color", kept, `--${name}`, words, `--${name}=${words}`, `${name}: ${words}`, `--page=${kept}`];
    const shown = redactArguments(args);
    expect(JSON.stringify(redactArguments(shown)) === JSON.stringify(shown), "not the same the second time");
    expectSame([...shown.slice(0, 3), shown[6]], [...args.slice(0, 3), args[6]], "ordinary arguments");
    return shown.join("\n");
  },
  setting: ({ secret: value, name = "token", kept = "" }) => {
    const word = value.replace(/[;,&"'\s=:]/g, "x");
    const shown = twice(redactText, `host=${kept};${name}=${word};timeout=3`);
    expect(shown.startsWith(`host=${kept};`) && shown.endsWith(";timeout=3"), `an ordinary setting changed: ${shown}`);
    expect(!shown.includes(word), `a secret is shown: ${shown}`);
    return shown;
  },
  expression: ({ secret: value, name = "token", kept = "" }) => {
    const rule = `request.headers["${name}"] == ${JSON.stringify(value)} || request.path == "/${kept}"`;
    const shown = twice((source) => redaction.expression(source), rule);
    expect(shown.endsWith(`|| request.path == "/${kept}"`), `an ordinary clause changed: ${shown}`);
    return shown;
  },
  "configured value": ({ secret: value, before, after, kept = "" }) => {
    const own = createRedaction();
    const long = `${value}0123456789`;
    own.hideValues([long, `${long}more`]);
    const texts = [`${before}${long}${after}`, JSON.stringify({ a: long }), `/x?y=${encodeURIComponent(long)}`, kept];
    const shown = texts.map((text) => twice(own.text, text));
    expect(shown[3] === kept, `another text changed: ${shown[3]}`);
    return [...shown, JSON.stringify(own.headers(["x-copy", long]))].join("\n");
  },
  /** Anything at all: nothing is thrown, and a second pass over a query, JSON or a URL changes nothing. */
  soup: ({ before, secret: value, after }) => {
    const text = `${before}${value}${after}`;
    for (const redact of [redactJson, redactQuery, redactUrl]) twice(redact, text);
    redactText(text);
    redaction.expression(text);
    return "";
  },
  repeated: ({ secret: value, before, after }) => withoutSecrets(`${before}${value}${after}${value}`, [value]),
};

function twice(redact: (text: string) => string, text: string): string {
  const shown = redact(text);
  const again = redact(shown);
  expect(again === shown, `not the same the second time: ${shown.slice(0, 200)} became ${again.slice(0, 200)}`);
  return shown;
}

function expectKept(shown: unknown, kept: string, name: string): void {
  expect(shown === kept, `${name} changed: ${String(shown)}`);
}

const NAME_STARTS = ["", "x-", "my_", "X-Team-", "app.", "upstream-"];
const NAMES = [
  "token",
  "secret",
  "api-key",
  "api_key",
  "apiKey",
  "access_token",
  "accessToken",
  "Signature",
  "sig",
  "session",
  "session-id",
  "jwt",
  "password",
  "pwd",
  "credential",
  "authorization",
  "privateKey",
  "subscription-key",
  "client_secret",
  "auth",
  "AUTH_TOKEN",
];
const SOUP = [
  '"token":',
  "token=",
  "--password ",
  "https://a:b@c/",
  "?key=",
  "&",
  "#",
  "{",
  "}",
  "[",
  "]",
  ":",
  "=",
  '"',
  "'",
  "\\",
  '\\"',
  " ",
  "\n",
  "<redacted>",
  'headers["x-api-key"]',
  " == ",
  "||",
  "1",
  "abc",
];

const PIECES = [
  "s3cr3t",
  "Zq",
  "9",
  "_",
  "-",
  ".",
  "~",
  "+",
  "/",
  "=",
  "@",
  ":",
  "%",
  " ",
  '"',
  "\\",
  "é",
  "&",
  ";",
  ",",
  "\n",
];

export const redactor = defineTarget<Input>({
  name: "redactor",
  seeds: Object.keys(PLACES).map((place) => ({
    place,
    before: "a ",
    secret: "s3cr3tZq9-long-enough",
    after: " b",
    name: "x-vault-token",
    kept: "blue",
  })),
  smokeCases: 8_000,
  generate: (random: Random) => {
    const place = random.pick(Object.keys(PLACES));
    const isSoup = place === "soup";
    return {
      place,
      before: random.text(isSoup ? SOUP : ["a", " ", "=", ";", "Basic ", "é", '"', "&"], isSoup ? 12 : 4),
      secret: `Zq9${random.text(PIECES, 6)}7Kx${random.text(PIECES, 4)}W`,
      after: random.text(isSoup ? SOUP : ["a", " ", "=", ";", "é", '"', "&"], isSoup ? 12 : 4),
      name: random.pick(NAME_STARTS) + random.pick(NAMES),
      kept: random.text(["b", "lue", "red", "go"], 3),
    };
  },
  run(input) {
    const show = Object.hasOwn(PLACES, input.place) ? PLACES[input.place] : undefined;
    // What a mutation made short is a word, not a secret; it may stand anywhere.
    if (show === undefined || input.secret.length < 8 || !/[A-Z].*[0-9]/.test(input.secret)) return "no secret";
    if (![input.before, input.secret, input.after].every(isWellFormed)) return "no text";
    // A mutation may make a name ordinary, or a kept value a secret; these cases say nothing.
    if (!NAME_STARTS.some((start) => NAMES.some((name) => start + name === (input.name ?? "token")))) return "no name";
    if (!/^[a-z]*$/.test(input.kept ?? "")) return "no word";
    if ((input.before + input.after).includes(input.secret)) return "elsewhere as well";
    const shown = show(input);
    const inUrl = input.secret.replace(/[/?#]/g, "");
    const forms = [
      input.secret,
      Buffer.from(input.secret).toString("base64"),
      Buffer.from(input.secret).toString("base64url"),
      JSON.stringify(input.secret).slice(1, -1),
    ];
    forms.push(encodeURIComponent(input.secret));
    // Half of a secret is too much as well.
    if (input.place === "url password") forms.push(inUrl.slice(-Math.max(8, inUrl.length >> 1)));
    for (const form of forms)
      expect(form.length < 8 || !shown.includes(form), `a secret is shown (${input.place}): ${shown.slice(0, 300)}`);
    return `${input.place} ${/[^\w-]/.test(input.secret)}`;
  },
});

function isWellFormed(text: string): boolean {
  return Buffer.from(text).toString() === text;
}
