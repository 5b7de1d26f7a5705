/**
 * Determines the API dialect of a request from the end of its path, because clients may use any base path. For Gemini
 * and Bedrock the path also names the model.
 */

/** The format of request, response and stream. */
export type Format =
  | "chat"
  | "responses"
  | "embeddings"
  | "messages"
  | "generateContent"
  | "converse"
  | "invoke"
  /** Embeddings of Gemini and Vertex, used only towards providers. */
  | "embedContent"
  | "predict"
  | "opaque";

/** The conversation dialects of clients. */
export function isConversation(format: Format): boolean {
  return format === "chat" || format === "messages" || format === "responses" || format === "generateContent";
}

export interface Dialect {
  readonly format: Format;
  /** The error format that the client's SDK expects, also for opaque requests. */
  readonly errorFormat: Format;
  /** The path after the base path, for example `/chat/completions` or `/models/gemini-2.5-pro:generateContent`. */
  readonly suffix: string;
  /** The model, if the path names it. */
  readonly pathModel: string | undefined;
  /** Whether the path requests a stream; undefined if the body decides. */
  readonly pathStream: boolean | undefined;
  /** The request generates nothing (token counts, model lists), so it is not charged. */
  readonly free: boolean;
  /** The path belongs to an LLM API. On other paths a request is read as OpenAI chat. */
  readonly isKnown: boolean;
  /**
   * False if the request's model is not the one that runs: batches, files and fine-tuning use stored requests, so an
   * allowed model in the request proves nothing.
   */
  readonly goesByModel: boolean;
}

/** A request for the model list, or for one model if `name` is set. */
export interface ModelsPath {
  readonly name: string | undefined;
}

/** Path suffixes and their formats. A longer suffix precedes one that it ends with. */
const SUFFIXES: readonly (readonly [suffix: string, format: Format, free?: boolean])[] = [
  ["/chat/completions", "chat"],
  ["/responses/input_tokens", "opaque", true],
  ["/responses/compact", "opaque"],
  ["/responses", "responses"],
  ["/embeddings", "embeddings"],
  ["/messages/count_tokens", "messages", true],
  ["/messages", "messages"],
  // These are forwarded without translation.
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

/** `/models/<name>:<verb>`; the name may contain slashes (tuned models) but not a colon. */
const GEMINI =
  /\/((?:models|tunedModels)\/([^:]+)):(generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents|asyncBatchEmbedContent|batchGenerateContent|predict|predictLongRunning|rawPredict|streamRawPredict)$/;
/** `/model/<id>/<verb>`; the id is percent-encoded. */
const BEDROCK = /\/model\/([^/]+)\/(converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)$/;
/** Stored objects below the API version, such as files and batches. These requests generate nothing themselves. */
const STORED =
  /\/(?:v1|v1beta)(\/(?:(?:files|uploads|batches|cachedContents|fileSearchStores|operations|vector_stores|fine_tuning|assistants|threads|conversations|containers|evals|videos|skills)(?:\/.*)?|responses\/[^/]+\/cancel|messages\/batches(?:\/.*)?))$/;
/** Realtime speech sessions name their model inside `session`. */
const REALTIME = /\/realtime(?:\/|$)/;
/** Paths that only Google's API has. */
const GOOGLE_ONLY = /\/v1beta\/|\/(?:interactions$|cachedContents|fileSearchStores|operations)/;
/** Objects stored under these paths may use any model. Matches any base path and case. */
const STORE_SEGMENT =
  /\/(?:files|uploads|batches|cachedContents|fileSearchStores|operations|vector_stores|fine_tuning|assistants|threads|conversations|containers|evals|videos|skills)(?:\/|$)|\/responses\/[^/]+\/cancel$/i;
/** Exceptions: the body names the model that runs. */
const STORE_BY_MODEL = /\/(?:assistants(?:\/[^/]+)?|videos|threads(?:\/[^/]+)?\/runs)\/?$/i;
const MODELS = /\/(?:v1|v1beta)\/models(?:\/(.+))?$|^\/models(?:\/(.+))?$/;

export function dialectOf(path: string): Dialect {
  for (const [suffix, format, free = false] of SUFFIXES) {
    // OpenAI's older threads API has a `/messages` path too.
    if (path.endsWith(suffix) && !(format === "messages" && STORED.test(path)))
      return {
        format,
        errorFormat: errorFormatOf(format, path),
        suffix,
        pathModel: undefined,
        pathStream: undefined,
        free,
        isKnown: true,
        goesByModel: true,
      };
  }
  // Google's servers decode an encoded colon, so the model before it must be found.
  const gemini = GEMINI.exec(path.includes("%3A") ? path.replaceAll("%3A", ":") : path);
  if (gemini) return geminiDialect(gemini[0], gemini[2] as string, gemini[3] as string);
  const bedrock = BEDROCK.exec(path);
  if (bedrock) return bedrockDialect(bedrock[0], bedrock[1] as string, bedrock[2] as string);
  const stored = STORED.exec(path);
  if (stored)
    return {
      format: "opaque",
      errorFormat: errorFormatOf("opaque", path),
      suffix: stored[1] as string,
      pathModel: undefined,
      pathStream: undefined,
      free: true,
      isKnown: true,
      goesByModel: goesByModel(path),
    };
  return {
    format: "chat",
    errorFormat: "chat",
    suffix: "/chat/completions",
    pathModel: undefined,
    pathStream: undefined,
    free: false,
    isKnown: REALTIME.test(path) || STORE_SEGMENT.test(path),
    goesByModel: goesByModel(path),
  };
}

function goesByModel(path: string): boolean {
  return !STORE_SEGMENT.test(path) || STORE_BY_MODEL.test(path);
}

function errorFormatOf(format: Format, path: string): Format {
  if (format !== "opaque") return format;
  if (GOOGLE_ONLY.test(path)) return "generateContent";
  return path.includes("/messages/batches") ? "messages" : "opaque";
}

export function modelsPathOf(path: string): ModelsPath | undefined {
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
    free: verb === "countTokens",
    isKnown: true,
    goesByModel: true,
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
    free: verb === "count-tokens",
    isKnown: true,
    goesByModel: true,
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
