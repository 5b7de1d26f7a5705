/**
 * Records the most recent requests for rehearsals and for lists of older requests, with the head, the identity, the
 * attributes of the MCP or LLM message, and the outcome, but without the body. Each record is a line of JSON, because
 * the garbage collector does not look into strings.
 */

import { peerInput } from "../base/peer-inputs.ts";
import { failureSource } from "../core/errors.ts";
import { shownPrincipal } from "../core/principal.ts";
import type { Claims, LlmAttributes, McpAttributes } from "../core/request-attributes.ts";
import { canonicalPath, pathAndQuery } from "../http/request-path.ts";
import { tryReadJson } from "../json/read-json.ts";
import { type FinishedRequest, parseStep, stepsText } from "./finished-request.ts";
import { oneLine } from "./history/row-batch.ts";
import { callRecords } from "./request-fields.ts";
import { explainRequest } from "./trace/explain.ts";
import type { RequestDetail, RequestRecord } from "./trace/record.ts";
import { type Redaction, withoutCopies } from "./trace/redact.ts";

const RECORD = peerInput("gateway/recorded-attributes");

export interface RecordedRequest {
  readonly id: string;
  /** The time is in milliseconds since the epoch. */
  readonly at: number;
  readonly durationMs: number;
  readonly listener: string;
  readonly method: string;
  readonly scheme: "http" | "https";
  readonly host: string;
  /** The path is stored as received, because a rehearsal parses it like the listener. */
  readonly path: string;
  readonly query: string;
  readonly source: string;
  readonly client?: string;
  readonly identity?: string;
  readonly route: string | null;
  readonly status: number | null;
  readonly code: string | null;
  readonly subject: string | null;
  /** Lists the policies that ran, each with its verdict unless it passed. */
  readonly policies: readonly string[];
  /** Principals look like `key:1f0a…` or `basic:"alice"`. */
  readonly principals: readonly string[];
  readonly claims?: Claims;
  readonly apiKey?: Readonly<Record<string, unknown>>;
  readonly mcp?: McpAttributes;
  readonly llm?: LlmAttributes;
  /** Alternates names and values. */
  readonly headers: readonly string[];
}

/** Returns a line of JSON, which starts with the time, or undefined if an attribute cannot be written as JSON. */
function recordLine({ exchange, values }: FinishedRequest, redaction: Redaction): string | undefined {
  const { attributes, source, credentials, status } = values;
  const { sentPairs } = exchange;
  const { mcp, llm } = attributes;
  const secrets = [...redaction.secrets(sentPairs), ...(credentials.secrets ?? [])];
  const headers: string[] = [];
  for (let i = 0; i < sentPairs.length; i += 2)
    if (!redaction.isSensitive(sentPairs[i] as string))
      headers.push(sentPairs[i] as string, withoutCopies(sentPairs[i + 1] as string, secrets));
  const hasPrincipal = attributes.apiKey !== undefined || attributes.basicAuth !== undefined;
  const principal = hasPrincipal ? exchange.identity.principal : undefined;
  const steps = stepsText(values.steps, false);
  const record: { [Name in keyof Required<RecordedRequest>]: RecordedRequest[Name] | undefined } = {
    at: values.startedAt,
    id: values.id,
    durationMs: Math.round(values.durationMs * 1000) / 1000,
    listener: values.listener,
    method: values.method,
    scheme: values.scheme,
    host: values.host,
    path: values.rawPath,
    query: redaction.query(values.query, credentials.query),
    source: source.address,
    route: values.route ?? null,
    status: status ?? null,
    code: values.failure?.code ?? null,
    subject: values.subject && oneLine(values.subject),
    policies: steps === "" ? [] : steps.split(","),
    principals: principal === undefined ? [] : shownPrincipal(principal).split("\n"),
    headers,
    client: source.client,
    identity: source.identity && oneLine(source.identity),
    claims: attributes.jwt,
    apiKey: attributes.apiKey,
    // The session id can be a credential.
    mcp:
      mcp &&
      ({
        methodName: mcp.methodName,
        target: mcp.target,
        tool: mcp.tool,
        prompt: mcp.prompt,
        resource: mcp.resource,
      } as McpAttributes),
    llm:
      llm &&
      ({
        requestModel: llm.requestModel,
        responseModel: llm.responseModel,
        provider: llm.provider,
        streaming: llm.streaming,
        inputTokens: llm.inputTokens,
        outputTokens: llm.outputTokens,
        totalTokens: llm.totalTokens,
        estimatedTokens: llm.estimatedTokens,
        maxOutputTokens: llm.maxOutputTokens,
      } as LlmAttributes),
  };
  try {
    const text = JSON.stringify(record);
    // Nearly all records repeat no secret.
    const isCopied = secrets.some((secret) => text.includes(JSON.stringify(secret).slice(1, -1)));
    return redaction.text(
      isCopied ? JSON.stringify(record, (_name, value) => withoutLongCopies(value, secrets)) : text,
    );
  } catch {
    return undefined;
  }
}

/** A shorter value, such as a method, is no copy of a secret, except in a header. */
const MIN_COPY_CHARS = 12;

function withoutLongCopies(value: unknown, secrets: readonly string[]): unknown {
  return typeof value === "string" && value.length >= MIN_COPY_CHARS ? withoutCopies(value, secrets) : value;
}

function timeOf(line: string): number {
  return Number(/^\{"at":([\d.]+),/.exec(line)?.[1] ?? Number.NaN);
}

function readRecord(line: string): RecordedRequest | undefined {
  return tryReadJson(RECORD, line) as RecordedRequest | undefined;
}

export const RECORDED_REQUESTS = 10_000;
/** Requests above this rate are not recorded unless there is a follower. */
const RECORDED_PER_SECOND = 500;
const WINDOW_MS = 100;
const MAX_RECORD_CHARS = 32 * 1024;
/** With large records, fewer than `RECORDED_REQUESTS` are kept. */
const MAX_RECORDED_CHARS = 16 * 1024 * 1024;

export interface RequestHistory {
  /** Records a finished request, unless its record is too large or, without a follower, the rate limit is exceeded. */
  note(finished: FinishedRequest): void;
  /** Returns the records as lines of JSON, in the order in which the requests ended. */
  lines(): string[];
  follow(listener: (line: string) => void): () => void;
  readonly counts: { readonly requests: number; readonly leftOut: number; readonly chars: number };
}

export function createRequestHistory(redaction: Redaction, perSecond = RECORDED_PER_SECOND): RequestHistory {
  const perWindow = (perSecond * WINDOW_MS) / 1_000;
  const followers = new Set<(line: string) => void>();
  /** The line with number `n` is at `n % RECORDED_REQUESTS`. */
  const ring: string[] = [];
  let first = 0;
  let next = 0;
  let chars = 0;
  let leftOut = 0;
  let window = -1;
  let inWindow = 0;

  function isTooMany(atMs: number): boolean {
    const now = Math.floor(atMs / WINDOW_MS);
    if (now !== window) {
      window = now;
      inWindow = 0;
    }
    inWindow += 1;
    return inWindow > perWindow;
  }

  function add(line: string): void {
    while (next - first === RECORDED_REQUESTS || (next > first && chars + line.length > MAX_RECORDED_CHARS)) {
      const oldest = first++ % RECORDED_REQUESTS;
      chars -= (ring[oldest] as string).length;
      ring[oldest] = "";
    }
    ring[next++ % RECORDED_REQUESTS] = line;
    chars += line.length;
  }

  return {
    note(finished) {
      if (isTooMany(finished.values.startedAt + finished.values.durationMs) && followers.size === 0) return;
      const line = recordLine(finished, redaction);
      if (line === undefined || line.length > MAX_RECORD_CHARS) {
        leftOut += 1;
        return;
      }
      add(line);
      for (const follower of followers) follower(line);
    },
    lines: () => Array.from({ length: next - first }, (_, i) => ring[(first + i) % RECORDED_REQUESTS] as string),
    follow(listener) {
      followers.add(listener);
      return () => void followers.delete(listener);
    },
    get counts() {
      return { requests: next - first, leftOut, chars };
    },
  };
}

export function recordedLines(history: RequestHistory): Buffer {
  return Buffer.from(
    history
      .lines()
      .map((line) => `${line}\n`)
      .join(""),
  );
}

/** Iterates over recorded requests in order of arrival. */
export interface RecordedTraffic extends Iterable<RecordedRequest> {
  readonly firstAt: number | undefined;
}

/** Parses each record only when it is iterated. Each part contains the lines of one thread. */
export function readTraffic(parts: readonly Uint8Array[]): RecordedTraffic {
  const timed = parts.flatMap((part) =>
    Buffer.from(part.buffer, part.byteOffset, part.byteLength)
      .toString()
      .split("\n")
      .map((line) => ({ line, at: timeOf(line) }))
      .filter(({ at }) => Number.isFinite(at)),
  );
  timed.sort((one, other) => one.at - other.at);
  return {
    firstAt: timed[0]?.at,
    *[Symbol.iterator]() {
      for (const { line } of timed) {
        const record = readRecord(line);
        if (record) yield record;
      }
    },
  };
}

/** Clients can choose request ids, so an id can occur many times. */
const MAX_FOUND = 20;

/** Returns requests that arrived before `beforeMs`, newest first. */
export function olderRequests(history: RequestHistory, beforeMs: number, limit: number): RequestRecord[] {
  return newest(history, limit, (line) => timeOf(line) < beforeMs).map(recordFrom);
}

/** Returns at most `MAX_FOUND` requests with this id, newest first. */
export function findOlder(history: RequestHistory, id: string): RequestDetail[] {
  const wanted = `"id":${JSON.stringify(id)},`;
  return newest(history, MAX_FOUND, (line) => line.startsWith(wanted, line.indexOf(",") + 1)).map((recorded) => {
    const record = recordFrom(recorded);
    return { ...record, story: explainRequest(record), requestState: recordedState(recorded) };
  });
}

function newest(history: RequestHistory, limit: number, matches: (line: string) => boolean): RecordedRequest[] {
  const found = history.lines().filter(matches);
  return found
    .sort((one, other) => timeOf(other) - timeOf(one))
    .slice(0, limit)
    .flatMap((line) => readRecord(line) ?? []);
}

function recordFrom(recorded: RecordedRequest): RequestRecord {
  const { at, source, client, status, code, policies } = recorded;
  const { id, durationMs, listener, route, method, host, path, subject } = recorded;
  return {
    // The value sorts before the sequence numbers of recent requests.
    seq: -1,
    id,
    time: new Date(at).toISOString(),
    durationMs,
    listener,
    route,
    backend: null,
    method,
    host,
    path: canonicalPath(path),
    source: { address: source, port: 0, ...(client === undefined ? {} : { client }) },
    status,
    answeredBy: null,
    end: status === null ? "aborted" : "complete",
    responseBytes: 0,
    upstreamMs: null,
    subject,
    isShort: true,
    ...callRecords(recorded),
    steps: policies.map((text) => parseStep("route", text)),
    ...(code === null ? {} : { failure: { code, source: failureSource(code), message: code } }),
  };
}

function recordedState({
  method,
  scheme,
  host,
  path,
  query,
  headers,
  claims,
}: RecordedRequest): RequestDetail["requestState"] {
  const pairs: Record<string, string[]> = Object.create(null);
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    pairs[name] = [...(pairs[name] ?? []), headers[i + 1] as string];
  }
  const shown = canonicalPath(path);
  const request = { method, scheme, host, path: shown, pathAndQuery: pathAndQuery({ path: shown, query }) };
  return {
    request: { ...request, headers: pairs },
    ...(claims ? { jwt: { ...claims } } : {}),
  };
}
