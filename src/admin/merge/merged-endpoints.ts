/**
 * Defines how the admin responses of worker threads are merged. Endpoints that are not listed are served by the main
 * thread alone.
 */
import { newForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { InspectedBackend } from "../../core/backend.ts";
import { readJson } from "../../json/read-json.ts";
import type { HistoryReport, TrafficRows } from "../../record/trace/traffic-numbers.ts";
import {
  type AdminEndpoint,
  type AdminHandler,
  type AdminRequest,
  type AdminResponse,
  type AdminSink,
  jsonResponse,
  textResponse,
} from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";
import { mergeProfiles } from "./merge-profiles.ts";
import {
  mergeDumps,
  mergeHistories,
  mergeMemory,
  mergeMirrors,
  mergeRequests,
  mergeShadow,
  mergeTasks,
  mergeTrafficRows,
} from "./merge-reports.ts";
import { closedSink, mergeStreams } from "./merge-streams.ts";

const RESPONSE = peerInput("thread/admin-response");

export type RequestThreads = (request: AdminRequest) => Promise<readonly AdminResponse[]>;

type Json = Readonly<Record<string, unknown>>;
type Merge = (request: AdminRequest, own: AdminHandler, forward: RequestThreads) => Promise<AdminResponse>;

const DEFAULT_LIMIT = 100;

const MERGES: Readonly<Record<string, Merge>> = {
  [ADMIN_PATHS.ready]: async (request, own, forward) => {
    const mine = await own(request);
    if (mine.status !== 200) return mine;
    const responses = await forward(request);
    return responses.find(({ status }) => status !== 200) ?? mine;
  },
  [ADMIN_PATHS.configDump]: reports((own, others) => mergeDumps(own, others)),
  [ADMIN_PATHS.tasks]: reports(mergeTasks),
  [ADMIN_PATHS.memory]: reports(mergeMemory),
  [ADMIN_PATHS.history]: async (request, own, forward) => {
    const mine = await own(request);
    if (mine.status !== 200) return mine;
    const others = (await forward(request)).filter(({ status }) => status === 200);
    const merged: unknown[] = [mine, ...others].map(parseJsonBody);
    return jsonResponse(
      request.query.has("by") ? mergeTrafficRows(merged as TrafficRows[]) : mergeHistories(merged as HistoryReport[]),
    );
  },
  [ADMIN_PATHS.requests]: async (request, _own, forward) => {
    const responses = await forward(request);
    if (request.query.get("follow") === "true" && !request.query.has("id")) return mergeStreams(responses);
    const good = responses.filter(({ status }) => status === 200);
    const [first] = responses;
    if (good.length === 0) return first ?? noThread();
    const limit = Number(request.query.get("limit") ?? DEFAULT_LIMIT);
    return jsonResponse(mergeRequests(good.map(parseJsonBody), limit));
  },
  [ADMIN_PATHS.trace]: async (request, _own, forward) => {
    // All threads wait for a matching request, and each traced request decrements the shared quota.
    const quota = new SharedArrayBuffer(8);
    new Int32Array(quota).fill(Number(request.query.get("count") ?? 1));
    return mergeStreams(await forward({ ...request, quota }));
  },
  [ADMIN_PATHS.logging]: async (request, own, forward) => {
    const mine = await own(request);
    if (request.method === "POST" && mine.status === 200) await forward(request);
    return mine;
  },
  [ADMIN_PATHS.mcpConnections]: async (request, own, forward) => {
    if (request.method !== "POST") return own(request);
    const body = await request.body();
    const again = { ...request, body: () => Promise.resolve(body) };
    const mine = await own(again);
    // Each thread caches tokens, so a revocation is sent to all.
    if (mine.status === 200) await forward(again);
    return mine;
  },
  [ADMIN_PATHS.mcpTools]: async (request, own, forward) => {
    if (request.method === "POST") return withWithheld(request, own, forward);
    return jsonResponse({
      backends: [...parseBackends(await own(request)), ...(await withheldByThreads(request, forward))],
    });
  },
  [ADMIN_PATHS.mcpLock]: withWithheld,
  [ADMIN_PATHS.mcpSessions]: async (request, own, forward) => {
    const body = await request.body();
    const again = { ...request, body: () => Promise.resolve(body) };
    const mine = await own(again);
    if (mine.status !== 404) return mine;
    return (await forward(again)).find(({ status }) => status !== 404) ?? mine;
  },
  [ADMIN_PATHS.cel]: async (request, own, forward) => {
    const body = await request.body();
    const again = { ...request, body: () => Promise.resolve(body) };
    const mine = await own(again);
    const found = mine.status === 200 ? parseJsonBody(mine).results : undefined;
    if (Array.isArray(found)) {
      // Each thread evaluates the requests that it served.
      const others = (await forward(again)).filter(({ status }) => status === 200);
      return jsonResponse({ results: [...found, ...others.flatMap((one) => parseJsonBody(one).results ?? [])] });
    }
    if (mine.status !== 404) return mine;
    return (await forward(again)).find(({ status }) => status !== 404) ?? mine;
  },
  [ADMIN_PATHS.shadow]: reports((own, others) => mergeShadow([own, ...others])),
  [ADMIN_PATHS.mirrors]: reports((own, others) => mergeMirrors([own, ...others])),
  [ADMIN_PATHS.recording]: async (request, _own, forward) => {
    const responses = await forward(request);
    if (request.query.get("follow") === "true") return mergeStreams(responses);
    const { status, type } = responses.find((response) => response.status !== 200) ?? responses[0] ?? noThread();
    return { status, type, body: Buffer.concat(responses.map(bodyBytes)) };
  },
  [ADMIN_PATHS.rehearse]: withHistories,
  [ADMIN_PATHS.access]: withHistories,
  [ADMIN_PATHS.cpuProfile]: profiles,
  [ADMIN_PATHS.heapProfile]: profiles,
};

export function mergedEndpoints(endpoints: readonly AdminEndpoint[], forward: RequestThreads): AdminEndpoint[] {
  return endpoints.map((endpoint) => {
    const merge = MERGES[endpoint.path];
    if (merge === undefined) return endpoint;
    const { GET, POST } = endpoint;
    return {
      ...endpoint,
      ...(GET ? { GET: (request) => merge(request, GET, forward) } : {}),
      ...(POST ? { POST: (request) => merge(request, POST, forward) } : {}),
    };
  });
}

async function withHistories(
  request: AdminRequest,
  own: AdminHandler,
  forward: RequestThreads,
): Promise<AdminResponse> {
  const historyRequest = { ...request, method: "GET", path: ADMIN_PATHS.recording, query: newForm({}) };
  const requestHistory = (await forward(historyRequest)).filter(({ status }) => status === 200).map(bodyBytes);
  return own({ ...request, requestHistory });
}

async function withWithheld(request: AdminRequest, own: AdminHandler, forward: RequestThreads): Promise<AdminResponse> {
  return own({ ...request, body: () => request.body(), withheld: await withheldByThreads(request, forward) });
}

async function withheldByThreads(request: AdminRequest, forward: RequestThreads): Promise<readonly InspectedBackend[]> {
  const body = (): Promise<Buffer> => Promise.resolve(Buffer.alloc(0));
  const responses = await forward({ ...request, method: "GET", path: ADMIN_PATHS.mcpTools, body });
  return responses.filter(({ status }) => status === 200).flatMap(parseBackends);
}

function parseBackends(response: AdminResponse): readonly InspectedBackend[] {
  return (parseJsonBody(response) as unknown as { backends: readonly InspectedBackend[] }).backends;
}

function reports(merge: (own: Json, others: readonly Json[]) => Json): Merge {
  return async (request, own, forward) => {
    const mine = await own(request);
    const others = (await forward(request)).filter(({ status }) => status === 200);
    return mine.status === 200 ? jsonResponse(merge(parseJsonBody(mine), others.map(parseJsonBody))) : mine;
  };
}

async function profiles(request: AdminRequest, _own: AdminHandler, forward: RequestThreads): Promise<AdminResponse> {
  const responses = await forward(request);
  const rejected = responses.find(({ status }) => status !== 200);
  const [first] = responses;
  if (rejected !== undefined || first === undefined || request.method === "HEAD") {
    for (const response of responses) if ("stream" in response) response.stream(closedSink);
    return rejected ?? first ?? noThread();
  }
  const { status, type, headers } = first;
  const head = { status, type, ...(headers ? { headers } : {}) };
  if (!("stream" in first)) return { ...head, body: await mergeProfiles(responses.map(bodyBytes)) };
  return {
    ...head,
    stream(sink) {
      const streams = responses.flatMap((response) => ("stream" in response ? [collected(response.stream, sink)] : []));
      Promise.all(streams)
        .then((all) => mergeProfiles(all.filter(({ length }) => length > 0)))
        .then(
          (profile) => {
            sink.write(profile);
            sink.end();
          },
          () => sink.end(),
        );
    },
  };
}

function collected(stream: (sink: AdminSink) => void, reader: AdminSink): Promise<Buffer> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    stream({
      write: (chunk) => chunks.push(Buffer.from(chunk)) > 0,
      end: () => resolve(Buffer.concat(chunks)),
      onClose: reader.onClose,
      bufferedBytes: () => 0,
    });
  });
}

function noThread(): AdminResponse {
  return textResponse(503, "no thread is running\n");
}

function bodyBytes(response: AdminResponse): Buffer {
  return "body" in response ? Buffer.from(response.body) : Buffer.alloc(0);
}

function bodyText(response: AdminResponse): string {
  return bodyBytes(response).toString();
}

function parseJsonBody(response: AdminResponse): Json {
  return readJson(RESPONSE, bodyText(response)) as Json;
}
