/**
 * Determines the API dialect from the end of the request path, because clients may use any base path.
 */

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
export type Operation = "call" | "count" | "job" | "objects" | "unknown";

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
