/**
 * Converts the responses of an HTTP API to results of tools. Large bodies are converted in steps.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import type { Steps } from "../../base/sliced-work.ts";
import { TextPieces } from "../../base/text-pieces.ts";
import type { HeaderList } from "../../http/headers.ts";
import { skipSpace } from "../../json/syntax.ts";
import { jsonProblemInSteps } from "../../json/validate-json.ts";
import type { ResultMembers } from "../protocol/json-rpc.ts";

const RESPONSE = peerInput("openapi-server/response");

const MAX_ERROR_CHARS = 10_000;
const STEP_CHARS = 64 * 1024;
const OPEN_OBJECT = 123;
const OPEN_ARRAY = 91;

/** Receives the body of a response. */
export interface ResultReader {
  readonly bytes: number;
  add(chunk: Buffer): void;
  /** Call this once, after the last chunk. */
  result(): Steps<ResultMembers>;
}

export function resultReader(status: number, headers: HeaderList): ResultReader {
  if (status >= 300 || isText(headers)) return new TextResult(status, headers);
  return isMedia(headers) ? new MediaResult(headers) : new HiddenResult(status, headers);
}

class TextResult implements ResultReader {
  readonly #text = new TextPieces();
  readonly #status: number;
  readonly #headers: HeaderList;

  constructor(status: number, headers: HeaderList) {
    this.#status = status;
    this.#headers = headers;
  }

  get bytes(): number {
    return this.#text.bytes;
  }

  add(chunk: Buffer): void {
    this.#text.add(chunk);
  }

  *result(): Steps<ResultMembers> {
    const text = this.#text.end();
    if (this.#status >= 300) return errorResult(this.#status, this.#headers, text);
    if (text === "") return emptyResult(this.#status);
    const type = mediaType(this.#headers);
    const isJson = /^application\/json$|\+json$/.test(type) || (type === "" && looksLikeJson(text));
    return yield* isJson ? jsonResult(text) : textResult(text);
  }
}

/** Encodes the bytes of an image or a sound while they arrive. */
class MediaResult implements ResultReader {
  readonly #type: string;
  readonly #texts: string[] = [];
  #rest: Buffer = Buffer.alloc(0);
  #bytes = 0;

  constructor(headers: HeaderList) {
    this.#type = mediaType(headers);
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(chunk: Buffer): void {
    this.#bytes += chunk.length;
    const all = Buffer.concat([this.#rest, chunk]);
    const end = all.length - (all.length % 3);
    this.#texts.push(all.toString("base64", 0, end));
    this.#rest = all.subarray(end);
  }

  // biome-ignore lint/correctness/useYield: the work was done while the bytes arrived
  *result(): Steps<ResultMembers> {
    if (this.#bytes === 0) return emptyResult(200);
    this.#texts.push(this.#rest.toString("base64"));
    const kind = this.#type.startsWith("image/") ? "image" : "audio";
    const end = `","mimeType":${JSON.stringify(this.#type)}}]`;
    return new Map([["content", [`[{"type":"${kind}","data":"`, ...this.#texts, end]]]);
  }
}

/** Counts the bytes of a body that is not shown. */
class HiddenResult implements ResultReader {
  readonly #status: number;
  readonly #type: string;
  bytes = 0;

  constructor(status: number, headers: HeaderList) {
    this.#status = status;
    this.#type = mediaType(headers);
  }

  add(chunk: Buffer): void {
    this.bytes += chunk.length;
  }

  // biome-ignore lint/correctness/useYield: the result is small
  *result(): Steps<ResultMembers> {
    if (this.bytes === 0) return emptyResult(this.#status);
    return plainResult(`The API returned ${this.bytes} bytes of ${this.#type}, which cannot be shown.`);
  }
}

function isText(headers: HeaderList): boolean {
  const type = mediaType(headers);
  return type === "" || type.startsWith("text/") || /(?:json|xml|yaml|javascript|csv|x-www-form-urlencoded)/.test(type);
}

function isMedia(headers: HeaderList): boolean {
  return /^(?:image|audio)\//.test(mediaType(headers));
}

export function problemResult(text: string): ResultMembers {
  return new Map([...plainResult(text), ["isError", ["true"]]]);
}

function mediaType(headers: HeaderList): string {
  return (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
}

function errorResult(status: number, headers: HeaderList, body: string): ResultMembers {
  if (status < 400) return problemResult(`The API returned a redirect (${status}), which is not followed.`);
  const said = body.slice(0, 2 * MAX_ERROR_CHARS).trim();
  const cut = said.length > MAX_ERROR_CHARS ? `${said.slice(0, MAX_ERROR_CHARS)}…` : said;
  const after = headers.get("retry-after");
  const text = `The API returned status ${status}${after === undefined ? "" : ` (retry after ${after})`}${cut === "" ? "." : `: ${cut}`}`;
  return problemResult(text);
}

function emptyResult(status: number): ResultMembers {
  return plainResult(`The API returned status ${status} and no content.`);
}

function plainResult(text: string): ResultMembers {
  return new Map([["content", [JSON.stringify([{ type: "text", text }])]]]);
}

function* jsonResult(body: string): Steps<ResultMembers> {
  const isJson = (yield* jsonProblemInSteps(RESPONSE, body)) === undefined;
  const result = yield* textResult(body);
  if (!isJson) return result;
  // Parsing would change numbers beyond 2^53, so the original JSON is inserted.
  const isObject = body.charCodeAt(skipSpace(body, 0)) === OPEN_OBJECT;
  return new Map([...result, ["structuredContent", isObject ? [body] : ['{"result":', body, "}"]]]);
}

/** Escapes can make a text six times as long, so texts that consist mostly of control characters are not shown. */
function* textResult(text: string): Steps<ResultMembers> {
  const pieces = ['[{"type":"text","text":"'];
  let chars = 0;
  for (let at = 0; at < text.length; ) {
    let end = Math.min(text.length, at + STEP_CHARS);
    // A surrogate pair is not split, because its halves would be escaped.
    if (end < text.length && (text.charCodeAt(end - 1) & 0xfc00) === 0xd800) end += 1;
    const piece = JSON.stringify(text.slice(at, end));
    pieces.push(piece.slice(1, -1));
    chars += piece.length;
    if (chars > 2 * text.length + STEP_CHARS)
      return plainResult(`The API returned ${text.length} control characters, which cannot be shown.`);
    at = end;
    yield;
  }
  pieces.push('"}]');
  return new Map([["content", pieces]]);
}

function looksLikeJson(body: string): boolean {
  const first = body.charCodeAt(0);
  return first === OPEN_OBJECT || first === OPEN_ARRAY;
}
