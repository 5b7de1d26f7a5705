/**
 * The interface of an admin endpoint: a path, its methods, and a sentence for the index page. Only server.ts uses the
 * HTTP server; an endpoint receives a request as data and returns a value or a stream. Numeric query parameters out of
 * range are rejected with the range.
 */
import type { InspectedBackend } from "../../core/backend.ts";
import { safeJson } from "../../json/safe-json.ts";
import type { Redaction } from "../../observe/trace/redact.ts";

export interface AdminRequest {
  /** The method as sent: HEAD uses the GET handler, and its stream is not started. */
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  /** Up to 1 MiB, or what the endpoint takes; rejects with BodyTooLarge. */
  body(): Promise<Buffer>;
  /** Aborted when the client disconnects before the response, to stop long work. */
  readonly left?: AbortSignal | undefined;
  /** Several threads are asked at once and share this: how many requests may still be traced, and how many have to end. */
  readonly quota?: SharedArrayBuffer | undefined;
  /** Where several threads serve: the facts of the requests of all of them. */
  readonly facts?: readonly Uint8Array[] | undefined;
  /** Where several threads serve: the MCP tools that sessions of all of them saw and clients did not get. */
  readonly withheld?: readonly InspectedBackend[] | undefined;
}

export type AdminAnswer =
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

/** A streamed response. A slow reader loses data instead of slowing the gateway. */
export interface AdminSink {
  /** Returns false if the reader is behind; the data is still buffered. */
  write(chunk: string | Buffer): boolean;
  end(): void;
  onClose(callback: () => void): void;
  bufferedBytes(): number;
  /** The reader has enough: what was written before is still read, then the stream ends. Only between threads. */
  onFinish?(callback: () => void): void;
}

export type AdminHandler = (request: AdminRequest) => AdminAnswer | Promise<AdminAnswer>;

export interface AdminEndpoint {
  readonly path: string;
  /** Also everything below the path. */
  readonly below?: boolean;
  readonly doc: string;
  readonly maxBodyBytes?: number;
  readonly GET?: AdminHandler;
  readonly POST?: AdminHandler;
}

export function textAnswer(status: number, body: string): AdminAnswer {
  return { status, type: "text/plain; charset=utf-8", body };
}

export function jsonAnswer(value: unknown, status = 200): AdminAnswer {
  return { status, type: "application/json", body: `${safeJson(value, 2)}\n` };
}

/**
 * The same endpoint, with secrets of the configuration hidden in whatever text it answers. Binary answers pass, and so do
 * body snapshots of a trace, which are exact.
 */
export function redactedEndpoint(endpoint: AdminEndpoint, redaction: Pick<Redaction, "text">): AdminEndpoint {
  const redacted = (handler: AdminHandler): AdminHandler => {
    return async (request) => redactedAnswer(await handler(request), redaction);
  };
  const { GET, POST } = endpoint;
  return { ...endpoint, ...(GET ? { GET: redacted(GET) } : {}), ...(POST ? { POST: redacted(POST) } : {}) };
}

function redactedAnswer(answer: AdminAnswer, redaction: Pick<Redaction, "text">): AdminAnswer {
  if (!("stream" in answer))
    return typeof answer.body === "string" ? { ...answer, body: redaction.text(answer.body) } : answer;
  const shown = (chunk: string | Buffer): string | Buffer =>
    typeof chunk !== "string" || chunk.includes('"type":"bodySnapshot"') ? chunk : redaction.text(chunk);
  return {
    ...answer,
    stream: (sink) => {
      const { onFinish } = sink;
      answer.stream({
        write: (chunk) => sink.write(shown(chunk)),
        end: () => sink.end(),
        onClose: (callback) => sink.onClose(callback),
        bufferedBytes: () => sink.bufferedBytes(),
        ...(onFinish ? { onFinish: (callback) => onFinish.call(sink, callback) } : {}),
      });
    },
  };
}

export interface NumberRange {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  readonly default: number;
}

export type NumberParameter =
  | { readonly ok: true; readonly value: number }
  | { readonly ok: false; readonly refusal: AdminAnswer };

export function numberParameter(query: URLSearchParams, range: NumberRange): NumberParameter {
  const text = query.get(range.name);
  if (text === null) return { ok: true, value: range.default };
  const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= range.min && value <= range.max) return { ok: true, value };
  return {
    ok: false,
    refusal: textAnswer(400, `${range.name} must be a whole number from ${range.min} to ${range.max}\n`),
  };
}
