/**
 * Records the most recent requests for rehearsals and for lists of older requests, with the head, the identity, the
 * attributes of the MCP or LLM message, and the outcome, but without the body. Records are serialized into byte buffers,
 * which the garbage collector does not traverse.
 */

import { Buffer } from "node:buffer";
import { peerInput } from "../base/peer-inputs.ts";
import { failureSource } from "../core/errors.ts";
import { shownPrincipal } from "../core/principal.ts";
import type { Claims, LlmAttributes, McpAttributes } from "../core/request-attributes.ts";
import type { Source } from "../core/source.ts";
import { canonicalPath, pathAndQuery } from "../http/request-path.ts";
import { readJson } from "../json/read-json.ts";
import { defined, type FinishedRequest, llmFields, mcpFields, parseStep, stepsText } from "./finished-request.ts";
import { oneLine } from "./history/row-batch.ts";
import { explainRequest } from "./trace/explain.ts";
import type { RequestDetail, RequestRecord } from "./trace/record.ts";
import { REDACTED, type Redaction, withoutCopies } from "./trace/redact.ts";

const ATTRIBUTES = peerInput("gateway/recorded-attributes");

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

/** This separator cannot occur in a request head or in the output of `JSON.stringify`. */
const FIELD = "\n";
const FIXED_FIELDS = 21;

/** Many requests share the same claims and keys, so each object is serialized once. */
const written = new WeakMap<object, string>();

function recordText(finished: FinishedRequest, redaction: Redaction): string {
  const { exchange, durationMs, status } = finished;
  const {
    arrived,
    attributes,
    source,
    failure,
    identity: { principal },
    credentials: { query: credentialQuery },
  } = exchange;
  const pairs = exchange.sentPairs;
  const query = exchange.originalQuery === "" ? "" : redaction.query(exchange.originalQuery, credentialQuery);
  const identity = source.identity === undefined ? "" : oneLine(source.identity);
  const principals =
    attributes.apiKey === undefined && attributes.basicAuth === undefined ? "" : shownPrincipals(principal);
  let text = `${exchange.startedAt}\n${exchange.id}\n${Math.round(durationMs * 1000)}\n${exchange.listener}\n${arrived.method}\n${arrived.scheme}\n${redaction.host(exchange.originalHost)}\n${arrived.rawPath}\n${query}\n${sourceText(source)}\n${identity}\n${exchange.route ?? ""}\n${status ?? ""}\n${failure?.code ?? ""}\n${oneLine(finished.subject ?? "")}\n${stepsText(exchange.steps, false)}\n${principals}\n${jsonOnce(attributes.jwt)}\n${jsonOnce(attributes.apiKey)}\n${mcpText(attributes.mcp)}\n${llmText(attributes.llm)}`;
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    if (!redaction.isSensitive(name)) text += `\n${name}\n${pairs[i + 1]}`;
  }
  const secrets = redaction.secrets(pairs);
  if (exchange.credentials.secrets !== undefined) secrets.push(...exchange.credentials.secrets);
  return redaction.text(withoutRepeated(text, secrets));
}

function sourceText({ address, client }: Source): string {
  return client === undefined ? address : `${address} ${client}`;
}

export function recordTime(text: string): number {
  return Number(text.slice(0, text.indexOf(FIELD)));
}

export type ParseJson = (text: string) => unknown;

function readAttributes(text: string): unknown {
  return readJson(ATTRIBUTES, text);
}

/** Parses untrusted text. Returns undefined if it is not a record. */
export function readRecord(text: string, parse: ParseJson = readAttributes): RecordedRequest | undefined {
  const fields = text.split(FIELD);
  const at = Number(fields[0]);
  if (fields.length < FIXED_FIELDS || !Number.isFinite(at)) return undefined;
  const field = (index: number): string => fields[index] as string;
  const status = field(12);
  const [source = "", client] = field(9).split(" ");
  return {
    at,
    id: field(1),
    durationMs: Number(field(2)) / 1000,
    listener: field(3),
    method: field(4),
    scheme: field(5) === "https" ? "https" : "http",
    host: field(6),
    path: field(7),
    query: field(8),
    source,
    route: field(11) || null,
    status: status === "" ? null : Number(status),
    code: field(13) || null,
    subject: field(14) || null,
    policies: field(15) === "" ? [] : field(15).split(","),
    principals: field(16) === "" ? [] : field(16).split("\t"),
    headers: fields.slice(FIXED_FIELDS),
    ...defined({
      client,
      identity: field(10) || undefined,
      claims: parseObject<Claims>(field(17), parse),
      apiKey: parseObject<Record<string, unknown>>(field(18), parse),
      mcp: parseObject<McpAttributes>(field(19), parse),
      llm: parseObject<LlmAttributes>(field(20), parse),
    }),
  };
}

function shownPrincipals(principal: string | undefined): string {
  return principal === undefined ? "" : shownPrincipal(principal).replaceAll("\n", "\t");
}

function jsonOnce(value: object | undefined): string {
  if (value === undefined) return "";
  const known = written.get(value);
  if (known !== undefined) return known;
  let text = "";
  try {
    text = JSON.stringify(value) ?? "";
  } catch {
    // Values that cannot be serialized are omitted.
  }
  written.set(value, text);
  return text;
}

/** Omits the session id, which can be a credential. */
function mcpText(mcp: McpAttributes | undefined): string {
  if (mcp === undefined) return "";
  const { methodName, target, tool, prompt, resource } = mcp;
  const text = (): string => JSON.stringify({ methodName, target, tool, prompt, resource });
  if (tool === undefined || prompt !== undefined || resource !== undefined) return text();
  const { name } = tool;
  // Consecutive calls often use the same tool.
  if (
    lastCall?.name !== name ||
    lastCall.target !== target ||
    lastCall.owner !== tool.target ||
    lastCall.methodName !== methodName
  )
    lastCall = { name, target, owner: tool.target, methodName, text: text() };
  return lastCall.text;
}

let lastCall:
  | { name: string; target: string | undefined; owner: string; methodName: string | undefined; text: string }
  | undefined;

function llmText(llm: LlmAttributes | undefined): string {
  if (llm === undefined) return "";
  const { requestModel, responseModel, provider, streaming, inputTokens, outputTokens, totalTokens } = llm;
  const { estimatedTokens, maxOutputTokens } = llm;
  const counts = { inputTokens, outputTokens, totalTokens, estimatedTokens, maxOutputTokens };
  return JSON.stringify({ requestModel, responseModel, provider, streaming, ...counts });
}

/**
 * Redacts copies of secrets. Long values are redacted anywhere, and short values only if they are a whole header value.
 */
function withoutRepeated(text: string, secrets: readonly string[]): string {
  // Nearly all texts repeat no secret, and a search creates no copy of the text.
  if (!secrets.some((secret) => text.includes(secret))) return text;
  const shown = withoutCopies(text, secrets);
  const short = secrets.filter((secret) => shown.includes(`${FIELD}${secret}`));
  if (short.length === 0) return shown;
  return shown
    .split(FIELD)
    .map((field, i) => (i > FIXED_FIELDS && short.includes(field) ? REDACTED : field))
    .join(FIELD);
}

function parseObject<Shape extends object>(text: string, parse: ParseJson): Shape | undefined {
  if (text === "") return undefined;
  try {
    const value = parse(text);
    return typeof value === "object" && value !== null ? (value as Shape) : undefined;
  } catch {
    return undefined;
  }
}

export const RECORDED_REQUESTS = 10_000;
/** Requests above this rate are not recorded unless there is a follower. */
const RECORDED_PER_SECOND = 500;
const WINDOW_MS = 100;
const MAX_RECORD_BYTES = 32 * 1024;
const SEGMENT_BYTES = 128 * 1024;
/** Limits the history to 16 MiB. With large records, fewer than `RECORDED_REQUESTS` are kept. */
const MAX_SEGMENTS = 128;
const SHARED_CLAIMS = 1_000;
const END = "\0";

interface Segment {
  readonly bytes: Buffer;
  used: number;
  count: number;
}

export interface RequestHistory {
  /** Records a finished request, unless its record is too large or, without a follower, the rate limit is exceeded. */
  note(finished: FinishedRequest): void;
  /** Returns copies of the buffers, oldest first. */
  segments(): Uint8Array[];
  /** Returns the live buffers, oldest first. They are reused, so callers must read them synchronously. */
  views(): Uint8Array[];
  follow(listener: (text: string) => void): () => void;
  readonly counts: { readonly requests: number; readonly leftOut: number; readonly bytes: number };
}

export function createRequestHistory(redaction: Redaction, perSecond = RECORDED_PER_SECOND): RequestHistory {
  const perWindow = (perSecond * WINDOW_MS) / 1_000;
  const segments: Segment[] = [];
  const followers = new Set<(text: string) => void>();
  let count = 0;
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

  /** Returns a segment with this many free bytes, and reuses the oldest segment if the limit is reached. */
  function roomFor(bytes: number): Segment {
    const last = segments[segments.length - 1];
    if (last !== undefined && last.used + bytes <= SEGMENT_BYTES) return last;
    const first = segments[0];
    const isFull = segments.length >= MAX_SEGMENTS || (first !== undefined && count - first.count >= RECORDED_REQUESTS);
    let next: Segment;
    if (isFull && first !== undefined) {
      segments.shift();
      count -= first.count;
      next = { bytes: first.bytes, used: 0, count: 0 };
    } else next = { bytes: Buffer.allocUnsafeSlow(SEGMENT_BYTES), used: 0, count: 0 };
    segments.push(next);
    return next;
  }

  return {
    note(finished) {
      if (isTooMany(finished.exchange.startedAt + finished.durationMs) && followers.size === 0) return;
      const text = recordText(finished, redaction);
      const worst = text.length * 3 + 1;
      const bytes = worst <= MAX_RECORD_BYTES ? worst : Buffer.byteLength(text) + 1;
      if (bytes > MAX_RECORD_BYTES) {
        leftOut += 1;
        return;
      }
      const segment = roomFor(bytes);
      segment.used += segment.bytes.write(text, segment.used, "utf8");
      segment.bytes[segment.used] = 0;
      segment.used += 1;
      segment.count += 1;
      count += 1;
      if (followers.size > 0) for (const follower of followers) follower(text);
    },
    segments: () =>
      segments.map(({ bytes, used }) => {
        // Another thread can read shared memory without a second copy.
        const copy = new Uint8Array(new SharedArrayBuffer(used));
        copy.set(bytes.subarray(0, used));
        return copy;
      }),
    views: () => segments.map(({ bytes, used }) => bytes.subarray(0, used)),
    follow(listener) {
      followers.add(listener);
      return () => void followers.delete(listener);
    },
    get counts() {
      return { requests: Math.min(count, RECORDED_REQUESTS), leftOut, bytes: segments.length * SEGMENT_BYTES };
    },
  };
}

export function readSegments(segments: readonly Uint8Array[]): RecordedRequest[] {
  return splitRecords(segments).flatMap((text) => readRecord(text) ?? []);
}

/** Iterates over recorded requests in order of arrival. */
export interface RecordedTraffic extends Iterable<RecordedRequest> {
  readonly firstAt: number | undefined;
}

/** Parses each record only when it is iterated. */
export function readTraffic(segments: readonly Uint8Array[]): RecordedTraffic {
  const texts = splitRecords(segments).filter((text) => Number.isFinite(recordTime(text)));
  const times = Float64Array.from(texts, recordTime);
  const order = [...texts.keys()].sort((one, other) => (times[one] ?? 0) - (times[other] ?? 0));
  const parse = parseOnce();
  return {
    firstAt: order[0] === undefined ? undefined : times[order[0]],
    *[Symbol.iterator]() {
      for (const index of order) {
        const record = readRecord(texts[index] as string, parse);
        if (record) yield record;
      }
    },
  };
}

/** Returns a JSON parser that caches its results, because many requests have the same claims. */
function parseOnce(): (text: string) => unknown {
  const known = new Map<string, unknown>();
  return (text) => {
    const before = known.get(text);
    if (before !== undefined) return before;
    const value: unknown = readJson(ATTRIBUTES, text);
    if (known.size >= SHARED_CLAIMS) known.clear();
    known.set(text, value);
    return value;
  };
}

function splitRecords(segments: readonly Uint8Array[]): string[] {
  const texts = segments.flatMap((bytes) =>
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8").split(END).slice(0, -1),
  );
  return texts.slice(-RECORDED_REQUESTS);
}

/** Clients can choose request ids, so an id can occur many times. */
const MAX_FOUND = 20;
/**
 * Records are in order of completion, so a long request can follow newer requests. A segment is skipped only if its
 * first request is newer by more than this.
 */
const SLACK_MS = 600_000;

/** Returns requests that arrived before `beforeMs`, newest first. */
export function olderRequests(attributes: RequestHistory, beforeMs: number, limit: number): RequestRecord[] {
  const found: RecordedRequest[] = [];
  const segments = attributes.views();
  for (let i = segments.length - 1; i >= 0; i--) {
    const segment = segments[i] as Uint8Array;
    if (firstArrivalMs(segment) - SLACK_MS > beforeMs) continue;
    for (const record of readSegments([segment])) if (record.at < beforeMs) found.push(record);
    if (found.length >= limit) break;
  }
  return found
    .sort((a, b) => b.at - a.at)
    .slice(0, limit)
    .map(recordFrom);
}

/** Returns at most `MAX_FOUND` requests with this id, newest first. */
export function findOlder(attributes: RequestHistory, id: string): RequestDetail[] {
  const wanted = Buffer.from(`\n${id}\n`);
  const found: RecordedRequest[] = [];
  for (const segment of attributes.views().reverse()) {
    const bytes = Buffer.from(segment.buffer, segment.byteOffset, segment.byteLength);
    for (let at = bytes.indexOf(wanted); at >= 0 && found.length < MAX_FOUND; at = bytes.indexOf(wanted, at + 1)) {
      const start = bytes.lastIndexOf(0, at) + 1;
      const end = bytes.indexOf(0, at);
      const record = readRecord(bytes.toString("utf8", start, end < 0 ? bytes.length : end));
      // The bytes of the id can also occur in another field.
      if (record?.id === id && found.at(-1)?.at !== record.at) found.push(record);
    }
  }
  return found
    .sort((a, b) => b.at - a.at)
    .map((recorded) => {
      const record = recordFrom(recorded);
      return { ...record, story: explainRequest(record), requestState: recordedState(recorded) };
    });
}

function firstArrivalMs(segment: Uint8Array): number {
  return recordTime(
    Buffer.from(segment.buffer, segment.byteOffset, Math.min(segment.byteLength, 64)).toString("latin1"),
  );
}

function recordFrom(recorded: RecordedRequest): RequestRecord {
  const { at, source, client, status, code, mcp, llm, policies } = recorded;
  const { id, durationMs, listener, route, method, host, path, subject } = recorded;
  return {
    // The value sorts before the sequence numbers of recent requests.
    seq: -1,
    id,
    time: new Date(at).toISOString(),
    durationMs: Math.round(durationMs * 1000) / 1000,
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
    ...(mcp ? { mcp: mcpFields(mcp) } : {}),
    ...(llm ? { llm: llmFields(llm) } : {}),
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
