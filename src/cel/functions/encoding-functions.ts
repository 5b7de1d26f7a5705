/**
 * Converts between strings, bytes, and JSON, and provides digests and random values. Error messages never contain the
 * input, because it may be a credential.
 */
import { createHash, randomUUID } from "node:crypto";
import { type CelFunc, CelScalar, type CelValue, celFunc } from "@bufbuild/cel";
import { newForm } from "../../base/form.ts";
import { InputError, peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import { fromCel } from "../values/output.ts";
import { exactToCel, isCelMap } from "../values/values.ts";

const TEXT = peerInput("client/expression-json");

const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

const { BYTES, DOUBLE, DYN, STRING } = CelScalar;

export const encodingFunctions: CelFunc[] = [
  celFunc("json", [STRING], DYN, parseJson),
  celFunc("json", [BYTES], DYN, (bytes) => parseJson(Buffer.from(bytes).toString("utf8"))),
  celFunc("toJson", [DYN], STRING, (value) => JSON.stringify(fromCel(value))),

  ...onTextAndBytes(["base64.encode", "base64Encode"], (data) => data.toString("base64")),
  ...["base64.decode", "base64Decode"].map((name) => celFunc(name, [STRING], BYTES, decodeBase64)),
  ...onTextAndBytes(["sha256.encode"], (data) => createHash("sha256").update(data).digest("hex")),
  ...onTextAndBytes(["sha1.encode"], (data) => createHash("sha1").update(data).digest("hex")),
  ...onTextAndBytes(["md5.encode"], (data) => createHash("md5").update(data).digest("hex")),

  celFunc("url.encode", [STRING], STRING, (text) => encodeURIComponent(text)),
  celFunc("url.decode", [STRING], STRING, decodeUrl),

  celFunc("form.encode", [DYN], STRING, encodeForm),
  celFunc("unvalidatedJwtPayload", [STRING], DYN, readJwtPayload),

  celFunc("uuid", [], STRING, () => randomUUID()),
  celFunc("random", [], DOUBLE, () => Math.random()),
];

function onTextAndBytes(names: readonly string[], encode: (data: Buffer) => string): CelFunc[] {
  return names.flatMap((name) => [
    celFunc(name, [STRING], STRING, (text) => encode(Buffer.from(text))),
    celFunc(name, [BYTES], STRING, (bytes) => encode(Buffer.from(bytes))),
  ]);
}

function parseJson(text: string): CelValue {
  if (text.length > TEXT.maxBytes) throw new Error(`json: the text is longer than ${TEXT.maxBytes} characters`);
  let value: unknown;
  try {
    value = readJson(TEXT, text);
  } catch (error) {
    if (error instanceof InputError && error.problem === "items") throw new Error(`json: the text ${error.message}`);
    throw new Error("json: the text is not valid JSON");
  }
  return exactToCel(value);
}

/** Accepts both alphabets and missing padding. Other characters are an error, although Node.js skips them. */
function decodeBase64(text: string): Uint8Array {
  if (!BASE64.test(text)) throw new Error("base64.decode: the text is not base64");
  return new Uint8Array(Buffer.from(text, "base64"));
}

/** Encodes a map as `application/x-www-form-urlencoded`. */
function encodeForm(value: CelValue): string {
  const fields = fromCel(value);
  if (typeof fields !== "object" || fields === null || Array.isArray(fields))
    throw new Error("form.encode: the value is not a map");
  const pairs = Object.entries(fields).map(([name, field]): [string, string] => {
    if (typeof field === "object") throw new Error("form.encode: a value is neither a string, a number, nor a bool");
    return [name, String(field)];
  });
  return newForm(pairs).toString();
}

/** Reads the claims of a token without verifying it. */
function readJwtPayload(token: string): CelValue {
  const [, payload, signature, ...others] = token.split(".");
  if (payload === undefined || signature === undefined || others.length > 0 || !BASE64.test(payload))
    throw new Error("unvalidatedJwtPayload: the text is not a JWT");
  const value = parseJson(Buffer.from(payload, "base64").toString("utf8"));
  if (!isCelMap(value)) throw new Error("unvalidatedJwtPayload: the payload is not an object");
  return value;
}

function decodeUrl(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error("url.decode: the text has a malformed escape");
  }
}
