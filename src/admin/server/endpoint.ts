/**
 * Defines the interface of an admin endpoint, which receives a request as data and returns a value or a stream.
 */

import type { Form } from "../../base/form.ts";
import type { PeerInput } from "../../base/peer-inputs.ts";
import { escapeLines } from "../../base/safe-text.ts";
import { suggestion } from "../../cel/values/nearest-name.ts";
import type { InspectedBackend } from "../../core/backend.ts";
import { safeJson } from "../../json/safe-json.ts";
import type { Redaction } from "../../record/trace/redact.ts";

export interface AdminRequest {
  /** Contains the method as sent. HEAD uses the GET handler, and its stream is not started. */
  readonly method: string;
  readonly path: string;
  readonly query: Form;
  /** Reads up to 1 MiB, or up to the limit of the endpoint. Rejects with BodyTooLarge. */
  body(): Promise<Buffer>;
  /** Aborted when the client disconnects before the response is complete, to stop long work. */
  readonly left?: AbortSignal | undefined;
  /** Worker threads share two counters: requests that may still be traced, and traces that must still end. */
  readonly quota?: SharedArrayBuffer | undefined;
  readonly requestHistory?: readonly Uint8Array[] | undefined;
  /** Contains the MCP tools that sessions of all worker threads saw but withheld from clients. */
  readonly withheld?: readonly InspectedBackend[] | undefined;
}

export type AdminResponse =
  | {
      readonly status: number;
      readonly type: string;
      readonly body: string | Buffer;
      readonly headers?: Readonly<Record<string, string>>;
    }
  | {
      readonly status: number;
      readonly type: string;
      readonly headers?: Readonly<Record<string, string>>;
      stream(sink: AdminSink): void;
    };

export interface AdminSink {
  /** Returns false if the reader is behind. The data is still buffered. */
  write(chunk: string | Buffer): boolean;
  end(): void;
  onClose(callback: () => void): void;
  bufferedBytes(): number;
  /** Registers a callback for when the reader needs no further data. Earlier chunks are still delivered. */
  onFinish?(callback: () => void): void;
}

export type AdminHandler = (request: AdminRequest) => AdminResponse | Promise<AdminResponse>;

export interface AdminEndpoint {
  readonly path: string;
  readonly below?: boolean;
  readonly doc: string;
  /** Limits the body of a request. The default is `admin-client/body`. */
  readonly input?: PeerInput;
  readonly GET?: AdminHandler;
  readonly POST?: AdminHandler;
}

export function textResponse(status: number, body: string): AdminResponse {
  return { status, type: "text/plain; charset=utf-8", body };
}

export function jsonResponse(value: unknown, status = 200): AdminResponse {
  return { status, type: "application/json", body: `${safeJson(value, 2)}\n` };
}

/** The whole event is matched, because clients choose values of other events, such as claims of their tokens. */
const BODY_SNAPSHOT =
  /^data: \{"eventStart":(?:null|\d+),"eventEnd":\d+,"severity":"\w+","message":\{"type":"bodySnapshot","stage":"[a-z ]+","body":"[\w+/=]*"(?:,"truncated":true)?\}\}\n\n$/;

/**
 * Wraps an endpoint so that text responses are escaped and secrets of the configuration are redacted in them. Binary
 * responses are not changed, and body snapshots of a trace are only escaped.
 */
export function redactedEndpoint(endpoint: AdminEndpoint, redaction: Pick<Redaction, "text">): AdminEndpoint {
  const redacted = (handler: AdminHandler): AdminHandler => {
    return async (request) => redactedResponse(await handler(request), redaction);
  };
  const { GET, POST } = endpoint;
  return { ...endpoint, ...(GET ? { GET: redacted(GET) } : {}), ...(POST ? { POST: redacted(POST) } : {}) };
}

function redactedResponse(response: AdminResponse, redaction: Pick<Redaction, "text">): AdminResponse {
  // The metrics format has no such escapes, and monitoring systems read it.
  const shownText = response.type.includes("version=") ? (text: string): string => text : escapeLines;
  if (!("stream" in response))
    return typeof response.body === "string"
      ? { ...response, body: shownText(redaction.text(response.body)) }
      : response;
  const shown = (chunk: string | Buffer): string | Buffer => {
    if (typeof chunk !== "string") return chunk;
    return shownText(BODY_SNAPSHOT.test(chunk) ? chunk : redaction.text(chunk));
  };
  return {
    ...response,
    stream: (sink) => {
      const { onFinish } = sink;
      response.stream({
        write: (chunk) => sink.write(shown(chunk)),
        end: () => sink.end(),
        onClose: (callback) => sink.onClose(callback),
        bufferedBytes: () => sink.bufferedBytes(),
        ...(onFinish ? { onFinish: (callback) => onFinish.call(sink, callback) } : {}),
      });
    },
  };
}

/** Returns the response to a query with a parameter that the endpoint does not have, which would be ignored otherwise. */
export function unknownParameter(query: Form, known: readonly string[]): AdminResponse | undefined {
  const unknown = [...query.keys()].find((name) => !known.includes(name));
  if (unknown === undefined) return undefined;
  const hint = suggestion(unknown, known) || `; expected ${known.join(", ")}`;
  return textResponse(400, `unknown parameter ${JSON.stringify(unknown)}${hint}\n`);
}

export interface NumberRange {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  readonly default: number;
}

export type NumberParameter =
  | { readonly ok: true; readonly value: number }
  | { readonly ok: false; readonly rejection: AdminResponse };

export function numberParameter(query: Form, range: NumberRange): NumberParameter {
  const text = query.get(range.name);
  if (text === null) return { ok: true, value: range.default };
  const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= range.min && value <= range.max) return { ok: true, value };
  return {
    ok: false,
    rejection: textResponse(400, `${range.name} must be a whole number from ${range.min} to ${range.max}\n`),
  };
}
