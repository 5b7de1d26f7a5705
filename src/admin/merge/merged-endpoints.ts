/**
 * The admin interface with worker threads: the table of how their responses are merged. The main thread alone answers
 * endpoints that are not listed, such as the configuration and the rate limits, which are in shared memory.
 */
import type { InspectedBackend } from "../../core/backend.ts";
import type { HistoryReport } from "../../observe/trace/request-record.ts";
import {
  type AdminAnswer,
  type AdminEndpoint,
  type AdminHandler,
  type AdminRequest,
  type AdminSink,
  jsonAnswer,
  textAnswer,
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
export type AskThreads = (request: AdminRequest) => Promise<readonly AdminAnswer[]>;

type Json = Readonly<Record<string, unknown>>;
type Merge = (request: AdminRequest, own: AdminHandler, ask: AskThreads) => Promise<AdminAnswer>;

/** As many as the endpoint shows if nobody says how many. */
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
    const answers = await ask(request);
    return answers.find(({ status }) => status !== 200) ?? mine;
  },
  [ADMIN_PATHS.configDump]: reports((own, others) => mergeDumps(own, others)),
  [ADMIN_PATHS.tasks]: reports(mergeTasks),
  [ADMIN_PATHS.memory]: reports(mergeMemory),
  [ADMIN_PATHS.history]: async (request, own, ask) => {
    const mine = await own(request);
    if (mine.status !== 200) return mine;
    const others = (await ask(request)).filter(({ status }) => status === 200);
    return jsonAnswer(mergeHistories([mine, ...others].map((answer) => jsonOf(answer) as unknown as HistoryReport)));
  },
  [ADMIN_PATHS.requests]: async (request, _own, ask) => {
    const answers = await ask(request);
    if (request.query.get("follow") === "true" && !request.query.has("id")) return mergeStreams(answers);
    const good = answers.filter(({ status }) => status === 200);
    const [first] = answers;
    if (good.length === 0) return first ?? noThread();
    const limit = Number(request.query.get("limit") ?? DEFAULT_LIMIT);
    return jsonAnswer(mergeRequests(good.map(jsonOf), limit));
  },
  [ADMIN_PATHS.trace]: async (request, _own, ask) => {
    // All threads wait, and whichever gets such a request first takes one of what they share.
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
    return jsonAnswer({ backends: [...backendsOf(await own(request)), ...(await withheldByThreads(request, ask))] });
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
    const answers = await ask(request);
    if (request.query.get("follow") === "true") return mergeStreams(answers);
    const { status, type } = answers.find((answer) => answer.status !== 200) ?? answers[0] ?? noThread();
    return { status, type, stream: (sink) => oneAfterAnother(answers, sink) };
  },
  [ADMIN_PATHS.rehearse]: async (request, own, ask) => {
    const query = new URLSearchParams({ form: "segments" });
    const asked = { ...request, method: "GET", path: ADMIN_PATHS.recording, query };
    const facts = (await ask(asked)).filter(({ status }) => status === 200).map(bytesOf);
    return own({ ...request, facts });
  },
  [ADMIN_PATHS.cpuProfile]: profiles,
  [ADMIN_PATHS.heapProfile]: profiles,
};

export function mergedEndpoints(endpoints: readonly AdminEndpoint[], ask: AskThreads): AdminEndpoint[] {
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

/** The main thread asks the servers; what sessions saw of those that it cannot ask is known to the threads. */
async function withWithheld(request: AdminRequest, own: AdminHandler, ask: AskThreads): Promise<AdminAnswer> {
  return own({ ...request, body: () => request.body(), withheld: await withheldByThreads(request, ask) });
}

async function withheldByThreads(request: AdminRequest, ask: AskThreads): Promise<readonly InspectedBackend[]> {
  const body = (): Promise<Buffer> => Promise.resolve(Buffer.alloc(0));
  const answers = await ask({ ...request, method: "GET", path: ADMIN_PATHS.mcpTools, body });
  return answers.filter(({ status }) => status === 200).flatMap(backendsOf);
}

function backendsOf(answer: AdminAnswer): readonly InspectedBackend[] {
  return (jsonOf(answer) as unknown as { backends: readonly InspectedBackend[] }).backends;
}

function reports(merge: (own: Json, others: readonly Json[]) => Json): Merge {
  return async (request, own, ask) => {
    const mine = await own(request);
    const others = (await ask(request)).filter(({ status }) => status === 200);
    return mine.status === 200 ? jsonAnswer(merge(jsonOf(mine), others.map(jsonOf))) : mine;
  };
}

/** All threads are measured at the same time. */
async function profiles(request: AdminRequest, _own: AdminHandler, ask: AskThreads): Promise<AdminAnswer> {
  const answers = await ask(request);
  const refused = answers.find(({ status }) => status !== 200);
  const [first] = answers;
  if (refused !== undefined || first === undefined || request.method === "HEAD") {
    for (const answer of answers) if ("stream" in answer) answer.stream(NOBODY);
    return refused ?? first ?? noThread();
  }
  const { status, type, headers } = first;
  const head = { status, type, ...(headers ? { headers } : {}) };
  if (!("stream" in first)) return { ...head, body: mergeProfiles(answers.map(bytesOf)) };
  return {
    ...head,
    stream(sink) {
      const streams = answers.flatMap((answer) => ("stream" in answer ? [collected(answer.stream, sink)] : []));
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

function oneAfterAnother(answers: readonly AdminAnswer[], sink: AdminSink): void {
  const streams = answers.flatMap((answer) => ("stream" in answer ? [collected(answer.stream, sink)] : []));
  Promise.all(streams).then(
    (all) => {
      for (const bytes of all) sink.write(bytes);
      sink.end();
    },
    () => sink.end(),
  );
}

/** The whole of a stream; a reader that leaves ends it. */
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

const NOBODY: AdminSink = {
  write: () => false,
  end: () => undefined,
  onClose: (callback) => callback(),
  bufferedBytes: () => 0,
};

function noThread(): AdminAnswer {
  return textAnswer(503, "no thread is running\n");
}

function bytesOf(answer: AdminAnswer): Buffer {
  return "body" in answer ? Buffer.from(answer.body) : Buffer.alloc(0);
}

function bodyOf(answer: AdminAnswer): string {
  return bytesOf(answer).toString();
}

function jsonOf(answer: AdminAnswer): Json {
  return JSON.parse(bodyOf(answer)) as Json;
}
