/**
 * Finds older requests in the request history, whose records have fewer details than `RecentRequests`.
 */

import { Buffer } from "node:buffer";
import { failureSource } from "../core/errors.ts";
import { canonicalPath, pathAndQuery } from "../http/request-path.ts";
import { type RecordedRequest, readRecord, recordTime } from "./recorded-request.ts";
import { type RequestHistory, readSegments } from "./request-history.ts";
import { explainRequest } from "./trace/explain.ts";
import type { RequestDetail, RequestRecord } from "./trace/request-record.ts";

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
    steps: policies.map((text) => {
      const [policy = "", verdict] = text.split("=");
      return {
        phase: "route" as const,
        policy,
        verdict: verdict === "refused" || verdict === "answered" ? verdict : ("passed" as const),
        micros: 0,
      };
    }),
    ...(code === null ? {} : { failure: { code, source: failureSource(code), message: code } }),
  };
}

function mcpFields(mcp: NonNullable<RecordedRequest["mcp"]>): NonNullable<RequestRecord["mcp"]> {
  const { methodName, tool, prompt, resource } = mcp;
  const name = tool?.name ?? prompt?.name ?? resource?.uri;
  const target = tool?.target ?? prompt?.target ?? resource?.target ?? mcp.target;
  return {
    ...(methodName === undefined ? {} : { method: methodName }),
    ...(target === undefined ? {} : { target }),
    ...(name === undefined ? {} : { name }),
  };
}

function llmFields(llm: NonNullable<RecordedRequest["llm"]>): NonNullable<RequestRecord["llm"]> {
  const { provider, requestModel, responseModel, inputTokens, outputTokens } = llm;
  const model = responseModel ?? requestModel;
  return {
    ...(provider === undefined ? {} : { provider }),
    ...(model === undefined ? {} : { model }),
    ...(inputTokens === undefined ? {} : { inputTokens }),
    ...(outputTokens === undefined ? {} : { outputTokens }),
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
