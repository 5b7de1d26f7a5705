/**
 * Determines the API dialect of a request from the end of its path, because clients may use any base path, and
 * whether the request is free, is charged by its usage, or has a cost that nobody reports. Only endpoints that the
 * table lists as free are free.
 */
import { alternativePaths, mayBeAmbiguous } from "../../http/request-path.ts";

export type Format =
  | "chat"
  | "responses"
  | "embeddings"
  | "messages"
  | "generateContent"
  | "converse"
  | "invoke"
  /** Only requests to Gemini and Vertex use these embedding formats. */
  | "embedContent"
  | "predict"
  | "opaque";

/** `converse` is excluded because Converse requests from clients are never translated. */
export function isConversation(format: Format): boolean {
  return format === "chat" || format === "messages" || format === "responses" || format === "generateContent";
}

/** `count` counts tokens, `job` runs a model later, and `objects` are stored objects, such as files and batches. */
type Operation = "call" | "count" | "job" | "objects" | "unknown";

export interface Dialect {
  readonly format: Format;
  readonly errorFormat: Format;
  /** Excludes the base path, for example `/chat/completions` or `/models/gemini-2.5-pro:generateContent`. */
  readonly suffix: string;
  readonly pathModel: string | undefined;
  readonly pathStream: boolean | undefined;
  readonly operation: Operation;
  readonly isKnown: boolean;
  /**
   * False if the request may run stored requests, so that the model in the request does not determine the model that
   * runs.
   */
  readonly runsRequestedModel: boolean;
}

export interface ModelsPath {
  readonly name: string | undefined;
}

/** A suffix must come before the shorter suffixes that it ends with. */
const SUFFIXES: readonly (readonly [suffix: string, format: Format, operation?: Operation])[] = [
  ["/chat/completions", "chat"],
  ["/responses/input_tokens", "opaque", "count"],
  ["/responses/compact", "opaque"],
  ["/responses", "responses"],
  ["/embeddings", "embeddings"],
  ["/messages/count_tokens", "messages", "count"],
  ["/messages", "messages"],
  ["/completions", "opaque"],
  ["/moderations", "opaque"],
  ["/v2/rerank", "opaque"],
  ["/rerank", "opaque"],
  ["/interactions", "opaque"],
  ["/images/generations", "opaque"],
  ["/images/edits", "opaque"],
  ["/images/variations", "opaque"],
  ["/audio/speech", "opaque"],
  ["/audio/transcriptions", "opaque"],
  ["/audio/translations", "opaque"],
];

/** Matches `/models/<name>:<verb>`. The name may contain slashes, but no colon. */
const GEMINI =
  /\/((?:models|tunedModels)\/([^:]+)):(generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents|asyncBatchEmbedContent|batchGenerateContent|predict|predictLongRunning|rawPredict|streamRawPredict)$/;
/** Matches `/model/<id>/<verb>`. The id may be percent-encoded. */
const BEDROCK = /\/model\/([^/]+)\/(converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)$/;
const JOBS: ReadonlySet<string> = new Set(["asyncBatchEmbedContent", "batchGenerateContent", "predictLongRunning"]);
/** Matches requests for stored objects, such as files and batches. */
const STORED =
  /\/(?:v1|v1beta)(\/(?:(?:files|uploads|batches|cachedContents|fileSearchStores|operations|vector_stores|fine_tuning|assistants|threads|conversations|containers|evals|videos|skills)(?:\/.*)?|responses\/[^/]+\/cancel|messages\/batches(?:\/.*)?))$/;
/** Realtime sessions name their model inside `session`, so the gateway recognizes them by their path. */
const REALTIME = /\/realtime(?:\/|$)/;
const GOOGLE_ONLY = /\/v1beta\/|\/(?:interactions$|cachedContents|fileSearchStores|operations)/;
/** Objects under these paths may use any model. The base path and the case are ignored. */
const STORE_SEGMENT =
  /\/(?:files|uploads|batches|cachedContents|fileSearchStores|operations|vector_stores|fine_tuning|assistants|threads|conversations|containers|evals|videos|skills)(?:\/|$)|\/responses\/[^/]+\/cancel$/i;
/** For these paths, the model in the body is the model that runs. */
const STORE_BY_MODEL = /\/(?:assistants(?:\/[^/]+)?|videos|threads(?:\/[^/]+)?\/runs)\/?$/i;
const MODELS = /\/(?:v1|v1beta)\/models(?:\/(.+))?$|^\/models(?:\/(.+))?$/;

export function detectDialect(path: string): Dialect {
  for (const [suffix, format, operation = "call"] of SUFFIXES) {
    // OpenAI's threads API also has a `/messages` path.
    if (path.endsWith(suffix) && !(format === "messages" && STORED.test(path)))
      return {
        format,
        errorFormat: errorFormatFor(format, path),
        suffix,
        pathModel: undefined,
        pathStream: undefined,
        operation,
        isKnown: true,
        runsRequestedModel: true,
      };
  }
  // Google's servers decode `%3A`, so a model before an encoded colon counts too.
  const gemini = GEMINI.exec(path.includes("%3A") ? path.replaceAll("%3A", ":") : path);
  if (gemini) return geminiDialect(gemini[0], gemini[2] as string, gemini[3] as string);
  const bedrock = BEDROCK.exec(path);
  if (bedrock) return bedrockDialect(bedrock[0], bedrock[1] as string, bedrock[2] as string);
  const stored = STORED.exec(path);
  if (stored)
    return {
      format: "opaque",
      errorFormat: errorFormatFor("opaque", path),
      suffix: stored[1] as string,
      pathModel: undefined,
      pathStream: undefined,
      operation: "objects",
      isKnown: true,
      runsRequestedModel: runsRequestedModel(path),
    };
  return {
    format: "chat",
    errorFormat: "chat",
    suffix: "/chat/completions",
    pathModel: undefined,
    pathStream: undefined,
    operation: "unknown",
    isKnown: REALTIME.test(path) || STORE_SEGMENT.test(path),
    runsRequestedModel: runsRequestedModel(path),
  };
}

function runsRequestedModel(path: string): boolean {
  return !STORE_SEGMENT.test(path) || STORE_BY_MODEL.test(path);
}

function errorFormatFor(format: Format, path: string): Format {
  if (format !== "opaque") return format;
  if (GOOGLE_ONLY.test(path)) return "generateContent";
  return path.includes("/messages/batches") ? "messages" : "opaque";
}

export function parseModelsPath(path: string): ModelsPath | undefined {
  const match = MODELS.exec(path);
  if (!match) return undefined;
  const name = match[1] ?? match[2];
  return { name: name === undefined ? undefined : decode(name) };
}

function geminiDialect(suffix: string, model: string, verb: string): Dialect {
  const format =
    verb === "generateContent" || verb === "streamGenerateContent"
      ? "generateContent"
      : verb.endsWith("awPredict")
        ? "messages"
        : "opaque";
  return {
    format,
    errorFormat: format === "messages" ? "messages" : "generateContent",
    suffix,
    pathModel: decode(model),
    pathStream: verb.startsWith("stream"),
    operation: verb === "countTokens" ? "count" : JOBS.has(verb) ? "job" : "call",
    isKnown: true,
    runsRequestedModel: true,
  };
}

function bedrockDialect(suffix: string, id: string, verb: string): Dialect {
  const format = verb.startsWith("converse") ? "converse" : verb.startsWith("invoke") ? "invoke" : "opaque";
  return {
    format,
    errorFormat: format === "opaque" ? "converse" : format,
    suffix,
    pathModel: decode(id),
    pathStream: verb.endsWith("stream"),
    operation: verb === "count-tokens" ? "count" : "call",
    isKnown: true,
    runsRequestedModel: true,
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * `metered` is charged the usage that the response reports, or an estimate of the texts. `unmetered` may cost money, but
 * neither the request nor its response shows how much, as for batches, videos, and WebSockets.
 */
export type Cost = "free" | "metered" | "unmetered";

export interface CostedRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly isUpgrade: boolean;
}

const READS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "DELETE"]);

/** Paths are compared in lower case. `*` matches one segment. */
const FREE: Readonly<Record<string, readonly string[]>> = {
  POST: [
    ...["files", "files:register", "uploads", "uploads/*/parts", "uploads/*/complete", "uploads/*/cancel"],
    ...["batches/*/cancel", "messages/batches/*/cancel", "responses/*/cancel", "filesearchstores"],
    ...["assistants", "assistants/*", "threads", "threads/*", "threads/*/messages", "threads/*/messages/*"],
    ...["threads/*/runs/*", "threads/*/runs/*/cancel", "conversations/*/items", "containers/*/files"],
    ...["vector_stores/*/files/*", "vector_stores/*/file_batches/*/cancel"],
    ...["evals", "evals/*", "evals/*/runs/*", "evals/*/runs/*/cancel", "skills", "skills/*", "skills/*/versions"],
    ...["fine_tuning/jobs/*/cancel", "fine_tuning/jobs/*/pause", "fine_tuning/checkpoints/*/permissions"],
    "fine_tuning/alpha/graders/validate",
  ],
  PUT: ["files"],
};
/** A pattern of `FREE` would match it too. */
const UNMETERED: readonly string[] = ["threads/runs"];
/** Mistral runs a model for each of its conversations. Those of OpenAI report no usage. */
const METERED: readonly string[] = ["cachedcontents", "conversations", "conversations/*", "conversations/*/restart"];
const STORES: ReadonlySet<string> = new Set([
  ...["files", "uploads", "batches", "cachedcontents", "filesearchstores", "operations", "vector_stores"],
  ...["fine_tuning", "assistants", "threads", "conversations", "containers", "evals", "videos", "skills"],
]);
const READ_ROOTS: ReadonlySet<string> = new Set([
  ...STORES,
  ...["models", "tunedmodels", "responses", "chat", "completions", "messages", "interactions", "organization"],
]);
/** Matches jobs and sessions of providers that a `host` backend may reach. */
const JOB_PATHS =
  /(?:^|\/)(?:batch\/jobs|video\/generations|batchpredictionjobs|tuningjobs|async-invoke|model-(?:invocation|customization)-jobs?|embed-jobs|finetuning|fine[-_]tunes|tunedmodels$|guardrail\/|retrieveandgenerate|(?:batches|runs|videos|jobs)$)/;
const SOCKETS = /(?:^|\/)(?:realtime(?:\/|$)|ws\/google\.ai\.generativelanguage\.)/;
const VERSION = /(?:^|\/)(?:v1|v1beta)\//g;
/** Google's servers and some frameworks read the method from the query. */
const METHOD_OVERRIDE = /(?:^|[&;])\$?(?:http_?(?:method|headers)|_method|x-(?:http-)?method(?:-override)?)=/i;

/** Returns undefined if the endpoint is not listed. */
export function listedCost(request: CostedRequest, { operation, pathModel }: Dialect): Cost | undefined {
  const { method, path, query, isUpgrade } = request;
  const isCall = operation === "call" || operation === "count" || operation === "job";
  if (isUpgrade) return isCall || SOCKETS.test(path.toLowerCase()) ? "unmetered" : undefined;
  const isRead = READS.has(method);
  if (isRead && pathModel !== undefined) return "unmetered";
  const cost =
    isCall && !isRead ? COSTS[operation] : worstOf(readingsOf(path).map((reading) => costAt(method, reading)));
  return cost === "free" && METHOD_OVERRIDE.test(decoded(query)) ? "unmetered" : cost;
}

/** The `ai` backend sends a POST to an unknown path to the provider's chat endpoint, which reports its usage. */
export function endpointCost(request: CostedRequest, dialect: Dialect): Cost {
  return listedCost(request, dialect) ?? (request.method === "POST" && !request.isUpgrade ? "metered" : "unmetered");
}

const COSTS = { call: "metered", count: "free", job: "unmetered" } as const;

function worstOf(costs: readonly (Cost | undefined)[]): Cost | undefined {
  return ORDER.find((cost) => costs.includes(cost));
}

const ORDER = ["unmetered", "metered", undefined, "free"] as const;

function costAt(method: string, { text, isVersioned }: Reading): Cost | undefined {
  const root = /^[^/:]*/.exec(text)?.[0] ?? "";
  if (READS.has(method)) return READ_ROOTS.has(root) ? "free" : undefined;
  if (matches(UNMETERED, text)) return "unmetered";
  if (method === "POST" && matches(METERED, text)) return "metered";
  if (isVersioned && matches(FREE[method] ?? [], text)) return "free";
  return STORES.has(root) || JOB_PATHS.test(text) || SOCKETS.test(text) ? "unmetered" : undefined;
}

function matches(patterns: readonly string[], text: string): boolean {
  const segments = text.split("/");
  return patterns.some((pattern) => {
    const wanted = pattern.split("/");
    return wanted.length === segments.length && wanted.every((one, i) => fits(one, segments[i] as string));
  });
}

/** A verb after a colon, as in `fileSearchStores/x:importFile`, is another operation. */
function fits(wanted: string, segment: string): boolean {
  return wanted === segment || (wanted === "*" && segment !== "" && !segment.includes(":"));
}

interface Reading {
  readonly text: string;
  readonly isVersioned: boolean;
}

/** Returns what servers may read after each version in the path, without differences in spelling that they ignore. */
function readingsOf(path: string): Reading[] {
  const paths = mayBeAmbiguous(path) ? [path, ...alternativePaths(path)] : [path];
  return paths.flatMap((one): Reading[] => {
    const text = one.toLowerCase().replace(/^\/|\/$/g, "");
    const after = [...text.matchAll(VERSION)].map(({ index, 0: { length } }) => text.slice(index + length));
    return after.length > 0 ? after.map((one) => ({ text: one, isVersioned: true })) : [{ text, isVersioned: false }];
  });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
