/**
 * Defines how the admin responses of worker threads are merged. Endpoints that are not listed are served by the main
 * thread alone, such as the rate limits, which are in shared memory.
 */
import type { InspectedBackend } from "../../core/backend.ts";
import type { HistoryReport } from "../../observe/trace/request-record.ts";
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
  mergeMetrics,
  mergeMirrors,
  mergeRequests,
  mergeShadow,
  mergeTasks,
} from "./merge-reports.ts";
import { mergeStreams } from "./merge-streams.ts";

/** Sends the request to every running thread. */
export type RequestThreads = (request: AdminRequest) => Promise<readonly AdminResponse[]>;

type Json = Readonly<Record<string, unknown>>;
type Merge = (request: AdminRequest, own: AdminHandler, ask: RequestThreads) => Promise<AdminResponse>;

/** The endpoint uses the same default for `?limit=`. */
const DEFAULT_LIMIT = 100;

const MERGES: Readonly<Record<string, Merge>> = {
  [ADMIN_PATHS.metrics]: async (request, own, ask) => {
    const mine = await own(request);
    const texts = [mine, ...(await ask(request))].filter(({ status }) => status === 200).map(bodyOf);
    return { status: 200, type: mine.type, body: mergeMetrics(texts) };
  },
  [ADMIN_PATHS.ready]: async (request, own, ask) => {
    const mine = await own(request);
    if (mine.status !== 200) return mine;
    const responses = await ask(request);
    return responses.find(({ status }) => status !== 200) ?? mine;
  },
  [ADMIN_PATHS.configDump]: reports((own, others) => mergeDumps(own, others)),
  [ADMIN_PATHS.tasks]: reports(mergeTasks),
  [ADMIN_PATHS.memory]: reports(mergeMemory),
  [ADMIN_PATHS.history]: async (request, own, ask) => {
    const mine = await own(request);
    if (mine.status !== 200) return mine;
    const others = (await ask(request)).filter(({ status }) => status === 200);
    return jsonResponse(
      mergeHistories([mine, ...others].map((response) => jsonOf(response) as unknown as HistoryReport)),
    );
  },
  [ADMIN_PATHS.requests]: async (request, _own, ask) => {
    const responses = await ask(request);
    if (request.query.get("follow") === "true" && !request.query.has("id")) return mergeStreams(responses);
    const good = responses.filter(({ status }) => status === 200);
    const [first] = responses;
    if (good.length === 0) return first ?? noThread();
    const limit = Number(request.query.get("limit") ?? DEFAULT_LIMIT);
    return jsonResponse(mergeRequests(good.map(jsonOf), limit));
  },
  [ADMIN_PATHS.trace]: async (request, _own, ask) => {
    // All threads wait for a matching request. Each traced request decrements the shared quota.
    const quota = new SharedArrayBuffer(8);
    new Int32Array(quota).fill(Number(request.query.get("count") ?? 1));
    return mergeStreams(await ask({ ...request, quota }));
  },
  [ADMIN_PATHS.logging]: async (request, own, ask) => {
    const mine = await own(request);
    if (request.method === "POST" && mine.status === 200) await ask(request);
    return mine;
  },
  [ADMIN_PATHS.mcpConnections]: async (request, own, ask) => {
    if (request.method !== "POST") return own(request);
    const body = await request.body();
    const again = { ...request, body: () => Promise.resolve(body) };
    const mine = await own(again);
    // Each thread caches tokens for some seconds, so a revocation is sent to all.
    if (mine.status === 200) await ask(again);
    return mine;
  },
  [ADMIN_PATHS.mcpTools]: async (request, own, ask) => {
    if (request.method === "POST") return withWithheld(request, own, ask);
    return jsonResponse({ backends: [...backendsOf(await own(request)), ...(await withheldByThreads(request, ask))] });
  },
  [ADMIN_PATHS.mcpLock]: withWithheld,
  [ADMIN_PATHS.mcpSessions]: async (request, own, ask) => {
    const body = await request.body();
    const again = { ...request, body: () => Promise.resolve(body) };
    const mine = await own(again);
    if (mine.status !== 404) return mine;
    return (await ask(again)).find(({ status }) => status !== 404) ?? mine;
  },
  [ADMIN_PATHS.cel]: async (request, own, ask) => {
    const body = await request.body();
    const again = { ...request, body: () => Promise.resolve(body) };
    const mine = await own(again);
    if (mine.status !== 404) return mine;
    return (await ask(again)).find(({ status }) => status !== 404) ?? mine;
  },
  [ADMIN_PATHS.shadow]: reports((own, others) => mergeShadow([own, ...others])),
  [ADMIN_PATHS.mirrors]: reports((own, others) => mergeMirrors([own, ...others])),
  [ADMIN_PATHS.recording]: async (request, _own, ask) => {
    const responses = await ask(request);
    if (request.query.get("follow") === "true") return mergeStreams(responses);
    const { status, type } = responses.find((response) => response.status !== 200) ?? responses[0] ?? noThread();
    return { status, type, stream: (sink) => concatenated(responses, sink) };
  },
  [ADMIN_PATHS.rehearse]: async (request, own, ask) => {
    const query = new URLSearchParams({ form: "segments" });
    const historyRequest = { ...request, method: "GET", path: ADMIN_PATHS.recording, query };
    const facts = (await ask(historyRequest)).filter(({ status }) => status === 200).map(bytesOf);
    return own({ ...request, facts });
  },
  [ADMIN_PATHS.cpuProfile]: profiles,
  [ADMIN_PATHS.heapProfile]: profiles,
};

export function mergedEndpoints(endpoints: readonly AdminEndpoint[], ask: RequestThreads): AdminEndpoint[] {
  return endpoints.map((endpoint) => {
    const merge = MERGES[endpoint.path];
    if (merge === undefined) return endpoint;
    const { GET, POST } = endpoint;
    return {
      ...endpoint,
      ...(GET ? { GET: (request) => merge(request, GET, ask) } : {}),
      ...(POST ? { POST: (request) => merge(request, POST, ask) } : {}),
    };
  });
}

/**
 * The main thread queries the servers. For servers that it cannot query, the threads return the tools that their
 * sessions saw.
 */
async function withWithheld(request: AdminRequest, own: AdminHandler, ask: RequestThreads): Promise<AdminResponse> {
  return own({ ...request, body: () => request.body(), withheld: await withheldByThreads(request, ask) });
}

async function withheldByThreads(request: AdminRequest, ask: RequestThreads): Promise<readonly InspectedBackend[]> {
  const body = (): Promise<Buffer> => Promise.resolve(Buffer.alloc(0));
  const responses = await ask({ ...request, method: "GET", path: ADMIN_PATHS.mcpTools, body });
  return responses.filter(({ status }) => status === 200).flatMap(backendsOf);
}

function backendsOf(response: AdminResponse): readonly InspectedBackend[] {
  return (jsonOf(response) as unknown as { backends: readonly InspectedBackend[] }).backends;
}

function reports(merge: (own: Json, others: readonly Json[]) => Json): Merge {
  return async (request, own, ask) => {
    const mine = await own(request);
    const others = (await ask(request)).filter(({ status }) => status === 200);
    return mine.status === 200 ? jsonResponse(merge(jsonOf(mine), others.map(jsonOf))) : mine;
  };
}

/** Profiles all threads at the same time. */
async function profiles(request: AdminRequest, _own: AdminHandler, ask: RequestThreads): Promise<AdminResponse> {
  const responses = await ask(request);
  const refused = responses.find(({ status }) => status !== 200);
  const [first] = responses;
  if (refused !== undefined || first === undefined || request.method === "HEAD") {
    for (const response of responses) if ("stream" in response) response.stream(CLOSED_SINK);
    return refused ?? first ?? noThread();
  }
  const { status, type, headers } = first;
  const head = { status, type, ...(headers ? { headers } : {}) };
  if (!("stream" in first)) return { ...head, body: mergeProfiles(responses.map(bytesOf)) };
  return {
    ...head,
    stream(sink) {
      const streams = responses.flatMap((response) => ("stream" in response ? [collected(response.stream, sink)] : []));
      Promise.all(streams).then(
        (all) => {
          sink.write(mergeProfiles(all.filter(({ length }) => length > 0)));
          sink.end();
        },
        () => sink.end(),
      );
    },
  };
}

function concatenated(responses: readonly AdminResponse[], sink: AdminSink): void {
  const streams = responses.flatMap((response) => ("stream" in response ? [collected(response.stream, sink)] : []));
  Promise.all(streams).then(
    (all) => {
      for (const bytes of all) sink.write(bytes);
      sink.end();
    },
    () => sink.end(),
  );
}

/** Reads a whole stream. The stream is closed when the reader disconnects. */
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

const CLOSED_SINK: AdminSink = {
  write: () => false,
  end: () => undefined,
  onClose: (callback) => callback(),
  bufferedBytes: () => 0,
};

function noThread(): AdminResponse {
  return textResponse(503, "no thread is running\n");
}

function bytesOf(response: AdminResponse): Buffer {
  return "body" in response ? Buffer.from(response.body) : Buffer.alloc(0);
}

function bodyOf(response: AdminResponse): string {
  return bytesOf(response).toString();
}

function jsonOf(response: AdminResponse): Json {
  return JSON.parse(bodyOf(response)) as Json;
}
