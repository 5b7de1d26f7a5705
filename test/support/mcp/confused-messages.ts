/**
 * Generates messages that two parsers could read differently: wrong types, repeated and escaped keys, other case,
 * calls without an ID, unusual whitespace, other methods, and batches.
 */
import fc from "fast-check";
import { ALLOWED, SECRET } from "./recording-server.ts";

export const METHODS = [
  ...["tools/call", "prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe"],
  ...["completion/complete", "subscriptions/listen"],
] as const;

/** Makes the client's names of the server's own. */
export type Spelling = (kind: "name" | "uri", name: string) => string;

export function confusedMessage(spelling: Spelling): fc.Arbitrary<string> {
  const message = fc.constantFrom(...METHODS).chain((method) => messageOf(method, spelling));
  return fc.oneof(
    { weight: 8, arbitrary: message },
    { weight: 1, arbitrary: fc.array(message, { minLength: 1, maxLength: 2 }).map((all) => `[${all.join(",")}]`) },
    { weight: 1, arbitrary: message.map((one) => `\ufeff${one}`) },
  );
}

function messageOf(method: (typeof METHODS)[number], spelling: Spelling): fc.Arbitrary<string> {
  const written = JSON.stringify(method);
  const params = object(fc.tuple(...paramsOf(method, spelling)));
  return object(
    fc.tuple(
      pair("jsonrpc", fc.constant('"2.0"')),
      often(pair("id", mostly(fc.constantFrom("1", '"a"', "1.5"), fc.constantFrom("null", "[1]", "{}")))),
      pair("method", mostly(fc.constantFrom(written, written.replace("/", "\\/")), fc.constant(`[${written}]`))),
      often(pair("params", mostly(params, listOf(params)))),
    ),
  );
}

/** What the method needs is mostly there, what others need now and then. */
function paramsOf(method: string, spelling: Spelling): fc.Arbitrary<string[]>[] {
  const name = named("name", spelling);
  const uri = named("uri", spelling);
  const reference = fc
    .constantFrom("name", "uri")
    .chain((kind) =>
      object(
        fc.tuple(
          pair("type", mostly(fc.constant(kind === "name" ? '"ref/prompt"' : '"ref/resource"'), REFERENCE_TYPES)),
          (kind === "name" ? often : seldom)(pair("name", name)),
          (kind === "uri" ? often : seldom)(pair("uri", uri)),
        ),
      ),
    );
  const uris = fc.array(uri, { maxLength: 3 }).map((all) => `[${all.join(",")}]`);
  const listen = object(fc.tuple(pair("resourceSubscriptions", mostly(uris, uri))));
  const members = { name, uri, ref: reference, notifications: listen };
  const needed = NEEDED[method] ?? "uri";
  return [
    ...Object.entries(members).map(([key, value]) => (key === needed ? often : seldom)(pair(key, value))),
    often(pair("arguments", fc.constantFrom("{}", '{"message":"x"}', "null"))),
    seldom(pair("_meta", fc.constantFrom("{}", "null", "[]", '"x"'))),
  ];
}

const NEEDED: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "completion/complete": "ref",
  "subscriptions/listen": "notifications",
};
const REFERENCE_TYPES = fc.constantFrom('"ref/prompt"', '"ref/resource"', '["ref/prompt"]', '"ref/tool"', "null");

/** A name under the client's or the server's own spelling, or something that a server could take for it. */
function named(kind: "name" | "uri", spelling: Spelling): fc.Arbitrary<string> {
  const known =
    kind === "name"
      ? fc.constantFrom(ALLOWED.tool, SECRET.tool, ALLOWED.prompt, SECRET.prompt)
      : fc.constantFrom(ALLOWED.resource, SECRET.resource);
  const text = fc
    .tuple(known, mostly(fc.constant(true), fc.constant(false)))
    .map(([one, isSpelled]) => JSON.stringify(isSpelled ? spelling(kind, one) : one));
  const odd = fc.oneof(
    text.map((one) => `[${one}]`),
    text.map((one) => `{"toString":${one}}`),
    text.map((one) => `${one.slice(0, -1)}\\ud800"`),
    fc.constantFrom("null", "1", "true", '""', "{}", "[]"),
  );
  return mostly(text, odd);
}

function mostly<T>(usual: fc.Arbitrary<T>, odd: fc.Arbitrary<T>): fc.Arbitrary<T> {
  return fc.oneof({ weight: 6, arbitrary: usual }, { weight: 1, arbitrary: odd });
}

const space = fc.constantFrom("", "", "", " ", "\n", "\r\n\t");

/** Mostly the key itself, else a spelling that some reader takes for it. */
function spelled(key: string): fc.Arbitrary<string> {
  const escaped = `${key.slice(0, -1)}\\u00${key.charCodeAt(key.length - 1).toString(16)}`;
  return fc.oneof(
    { weight: 28, arbitrary: fc.constant(key) },
    { weight: 1, arbitrary: fc.constantFrom(escaped, key.toUpperCase(), `${key[0]?.toUpperCase()}${key.slice(1)}`) },
    { weight: 1, arbitrary: fc.constant(key.replace("s", "\u017f")) },
  );
}

/** One member, now and then twice. */
function pair(key: string, value: fc.Arbitrary<string>): fc.Arbitrary<string[]> {
  const one = fc
    .tuple(spelled(key), value, space, space)
    .map(([name, text, a, b]) => `${a}"${name}"${b}:${a}${text}${b}`);
  return fc.oneof({ weight: 20, arbitrary: one.map((text) => [text]) }, { weight: 1, arbitrary: fc.tuple(one, one) });
}

function often(pairs: fc.Arbitrary<string[]>): fc.Arbitrary<string[]> {
  return mostly(pairs, fc.constant<string[]>([]));
}

function seldom(pairs: fc.Arbitrary<string[]>): fc.Arbitrary<string[]> {
  return mostly(fc.constant<string[]>([]), pairs);
}

function object(pairs: fc.Arbitrary<string[][]>): fc.Arbitrary<string> {
  return fc.tuple(pairs, fc.infiniteStream(fc.nat(1_000))).map(([all, order]) => {
    const sorted = all.flat().map((text) => ({ text, at: order.next().value as number }));
    return `{${sorted.sort((a, b) => a.at - b.at).map(({ text }) => text)}}`;
  });
}

function listOf(value: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return value.map((one) => `[${one}]`);
}
