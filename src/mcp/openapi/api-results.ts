/**
 * Converts the responses of an HTTP API to results of tools. Large bodies are converted in steps.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import type { Steps } from "../../base/sliced-work.ts";
import { TextPieces } from "../../base/text-pieces.ts";
import type { HeaderList } from "../../http/headers.ts";
import { skipSpace } from "../../json/syntax.ts";
import { jsonProblemInSteps } from "../../json/validate-json.ts";
import type { BodyReader } from "../transports/remote-server.ts";

const RESPONSE = peerInput("openapi-server/response");

const MAX_ERROR_CHARS = 10_000;
const STEP_CHARS = 64 * 1024;
const OPEN_OBJECT = 123;
const OPEN_ARRAY = 91;

/** Encodes the bytes of an image or a sound while they arrive. */
class Base64Pieces {
  readonly #texts: string[] = [];
  #rest: Buffer = Buffer.alloc(0);
  #bytes = 0;

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

  end(): string {
    this.#texts.push(this.#rest.toString("base64"));
    return this.#texts.join("");
  }
}

/** Counts the bytes of a body that is not shown. */
class CountedBytes {
  bytes = 0;

  add(chunk: Buffer): void {
    this.bytes += chunk.length;
  }

  end(): string {
    return this.bytes === 0 ? "" : String(this.bytes);
  }
}

/** Returns the reader whose text `toolResult` expects. */
export function resultReader(status: number, headers: HeaderList): BodyReader {
  if (status >= 300 || isText(headers)) return new TextPieces();
  return isMedia(headers) ? new Base64Pieces() : new CountedBytes();
}

function isText(headers: HeaderList): boolean {
  const type = mediaType(headers);
  return type === "" || type.startsWith("text/") || /(?:json|xml|yaml|javascript|csv|x-www-form-urlencoded)/.test(type);
}

function isMedia(headers: HeaderList): boolean {
  return /^(?:image|audio)\//.test(mediaType(headers));
}

/** `body` is the text of a text, base64 of an image or a sound, and the number of bytes of everything else. */
export function* toolResult(status: number, headers: HeaderList, body: string): Steps<string> {
  if (status >= 300) return errorResult(status, headers, body);
  if (body === "") return plainResult(`The API returned status ${status} and no content.`);
  const type = mediaType(headers);
  if (!isText(headers) && isMedia(headers))
    return `{"content":[{"type":"${type.startsWith("image/") ? "image" : "audio"}","data":"${body}","mimeType":${JSON.stringify(type)}}]}`;
  if (/^application\/json$|\+json$/.test(type) || (type === "" && looksLikeJson(body))) {
    const isJson = (yield* jsonProblemInSteps(RESPONSE, body)) === undefined;
    // Parsing would change numbers beyond 2^53, so the original JSON is inserted.
    const isObject = body.charCodeAt(skipSpace(body, 0)) === OPEN_OBJECT;
    const structured = isJson ? `,"structuredContent":${isObject ? body : `{"result":${body}}`}` : "";
    return yield* textResult(body, structured);
  }
  if (isText(headers)) return yield* textResult(body, "");
  return plainResult(`The API returned ${body} bytes of ${type}, which cannot be shown.`);
}

export function problemResult(text: string): string {
  return JSON.stringify({ content: [{ type: "text", text }], isError: true });
}

function mediaType(headers: HeaderList): string {
  return (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
}

function errorResult(status: number, headers: HeaderList, body: string): string {
  if (status < 400) return problemResult(`The API returned a redirect (${status}), which is not followed.`);
  const said = body.slice(0, 2 * MAX_ERROR_CHARS).trim();
  const cut = said.length > MAX_ERROR_CHARS ? `${said.slice(0, MAX_ERROR_CHARS)}…` : said;
  const after = headers.get("retry-after");
  const text = `The API returned status ${status}${after === undefined ? "" : ` (retry after ${after})`}${cut === "" ? "." : `: ${cut}`}`;
  return problemResult(text);
}

function plainResult(text: string): string {
  return JSON.stringify({ content: [{ type: "text", text }] });
}

/** Escapes can make a text six times as long, so texts that consist mostly of control characters are not shown. */
function* textResult(text: string, structured: string): Steps<string> {
  const pieces: string[] = [];
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
  return `{"content":[{"type":"text","text":"${pieces.join("")}"}]${structured}}`;
}

function looksLikeJson(body: string): boolean {
  const first = body.charCodeAt(0);
  return first === OPEN_OBJECT || first === OPEN_ARRAY;
}
