/**
 * Reads a token from the place that `location` names: a header, a query parameter, a cookie, or the value of a CEL
 * expression.
 */
import { z } from "zod";
import { readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Expression } from "../../cel/expression.ts";
import { ConfigError } from "../../core/config-error.ts";
import type { Exchange } from "../../core/exchange.ts";
import { celSource } from "../../core/schema.ts";
import type { CredentialPlaces } from "../../record/trace/redact.ts";
import { cookiePairs, cookieValues } from "./cookies.ts";
import {
  type CredentialLocation,
  credentialLocation,
  credentialPlaces,
  type FoundCredential,
  readCredential,
  withhold,
} from "./credential-location.ts";

const QUERY = peerInput("client/query");

/** Shorter values are not tokens, and other headers could contain them by accident. */
const MIN_WITHHELD_CHARS = 16;

export const tokenLocation = z.union([
  ...credentialLocation.options,
  z.strictObject({
    cookie: z.strictObject({
      name: z
        .string()
        .regex(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/, "expected the name of a cookie")
        .describe("The cookie's name."),
    }),
  }),
  z.strictObject({
    expression: celSource().describe(
      'A CEL expression whose value is the token, for example `request.headers["x-token"].split(" ")[1]`. If it fails, there is no token.',
    ),
  }),
]);

export type TokenLocation = z.output<typeof tokenLocation>;

/** A browser sends cookies with requests of other sites, so a page can attach them. */
export function isAttachedByPages(location: TokenLocation | undefined): boolean {
  return location !== undefined && ("cookie" in location || "expression" in location);
}

export interface TokenReader {
  read(exchange: Exchange): FoundCredential;
  /** Withholds the token from backends. With `restorable`, a `backendAuth` policy may still forward it. */
  withhold(exchange: Exchange, restorable: boolean): void;
  readonly places: CredentialPlaces;
}

export function createTokenReader(location: TokenLocation, cel: (source: string) => Expression): TokenReader {
  if ("cookie" in location) return cookieReader(location.cookie.name);
  if ("expression" in location) return expressionReader(cel(location.expression));
  return plainReader(location);
}

export function plainReader(location: CredentialLocation): TokenReader {
  return {
    read: ({ request }) => readCredential(request, location),
    withhold: (exchange, restorable) => withhold(exchange, location, restorable),
    places: credentialPlaces(location),
  };
}

function cookieReader(name: string): TokenReader {
  const read = ({ request }: Exchange): FoundCredential => {
    const [first, ...others] = cookieValues(request.headers, name);
    if (first === undefined || (first === "" && others.length === 0)) return { kind: "none" };
    return others.length === 0
      ? { kind: "found", value: first }
      : { kind: "bad", detail: `more than one cookie ${name}` };
  };
  return {
    read,
    withhold(exchange, restorable) {
      exchange.credentials.cookies ??= [];
      exchange.credentials.cookies.push(name);
      present(exchange, read(exchange), restorable);
    },
    places: { headers: ["cookie"] },
  };
}

function expressionReader(expression: Expression): TokenReader {
  if (expression.reads("request.body"))
    throw new ConfigError(undefined, "location", "the expression cannot read the body");
  const read = (exchange: Exchange): FoundCredential => {
    const result = expression.evaluate(exchange.celAttributes);
    if (!result.ok || result.value === "") return { kind: "none" };
    return typeof result.value === "string"
      ? { kind: "found", value: result.value }
      : { kind: "bad", detail: "the value of `location.expression` is not a string" };
  };
  const headers = [...expression.paths].flatMap((path) => /^request\.headers\.([a-z0-9-]+)$/.exec(path)?.[1] ?? []);
  return {
    read,
    withhold(exchange, restorable) {
      const found = read(exchange);
      if (found.kind === "found" && found.value.length >= MIN_WITHHELD_CHARS) withholdCopies(exchange, found.value);
      present(exchange, found, restorable);
    },
    places: { headers },
  };
}

/** The expression does not say where the token comes from, so every header, cookie, and parameter with it is removed. */
function withholdCopies({ request, credentials }: Exchange, token: string): void {
  for (const [name, value] of request.headers.entries()) {
    if (name === "cookie" || !value.includes(token)) continue;
    credentials.headers ??= [];
    if (!credentials.headers.includes(name)) credentials.headers.push(name);
  }
  for (const pair of cookiePairs(request.headers)) {
    if (!pair.includes(token)) continue;
    credentials.cookies ??= [];
    credentials.cookies.push(pair.split("=", 1)[0] ?? "");
  }
  for (const [name, value] of readForm(QUERY, request.query)) {
    if (!value.includes(token)) continue;
    credentials.query ??= [];
    credentials.query.push(name);
  }
}

/** A backend gets the token in the usual header, whatever the place that the client used. */
function present(exchange: Exchange, found: FoundCredential, restorable: boolean): void {
  if (restorable && found.kind === "found")
    exchange.credentials.presented = { header: "authorization", value: `Bearer ${found.value}` };
}
