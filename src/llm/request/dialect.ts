/**
 * Which API a request speaks, from the end of its path: clients may be given any base path, so only the end is
 * certain. Where the model's name stands in the path (Gemini, Bedrock) it is read from there.
 */

/** The shape of request, answer and stream. */
export type Format =
  | "chat"
  | "responses"
  | "embeddings"
  | "messages"
  | "generateContent"
  | "converse"
  | "invoke"
  /** Embeddings as Gemini and Vertex take them: only providers are asked so. */
  | "embedContent"
  | "predict"
  | "opaque";

/** The dialects in which clients talk with a model, whoever provides it. */
export function isConversation(format: Format): boolean {
  return format === "chat" || format === "messages" || format === "responses" || format === "generateContent";
}

export interface Dialect {
  readonly format: Format;
  /** The format whose errors the client understands, also where it asks for something that is not read. */
  readonly errorFormat: Format;
  /** What follows the base path, for example `/chat/completions` or `/models/gemini-2.5-pro:generateContent`. */
  readonly suffix: string;
  /** The model, where the path names it. */
  readonly pathModel: string | undefined;
  /** Whether the path asks for a stream; undefined where the body says. */
  readonly pathStream: boolean | undefined;
  /** It asks for the size of a prompt or a list of models: nothing is generated, so nothing is charged. */
  readonly free: boolean;
  /** The path belongs to an API of LLM providers; on any other path a request is read as OpenAI chat. */
  readonly isKnown: boolean;
  /**
   * False where the model of the request is not the one that works: batches, files and fine-tuning use what was stored, and
   * naming an allowed model beside it proves nothing.
   */
  readonly goesByModel: boolean;
}

/** The list of models; `name` for one of them. */
export interface ModelsPath {
  readonly name: string | undefined;
}

/** Ends of paths, each with its format. Longer ones come first where one ends with another. */
const SUFFIXES: readonly (readonly [suffix: string, format: Format, free?: boolean])[] = [
  ["/chat/completions", "chat"],
  ["/responses/input_tokens", "opaque", true],
  ["/responses/compact", "opaque"],
  ["/responses", "responses"],
  ["/embeddings", "embeddings"],
  ["/messages/count_tokens", "messages", true],
  ["/messages", "messages"],
  // These have no tokens of ours to translate: they go to the provider as they are.
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

/** `/models/<name>:<verb>`; the name may hold slashes (tuned models) but not a colon. */
const GEMINI =
  /\/((?:models|tunedModels)\/([^:]+)):(generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents|asyncBatchEmbedContent|batchGenerateContent|predict|predictLongRunning|rawPredict|streamRawPredict)$/;
/** `/model/<id>/<verb>`; the id is percent-encoded. */
const BEDROCK = /\/model\/([^/]+)\/(converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)$/;
/** Everything else below the API's version: files, batches, what is stored. Nothing is generated while it answers. */
const STORED =
  /\/(?:v1|v1beta)(\/(?:(?:files|uploads|batches|cachedContents|fileSearchStores|operations|vector_stores|fine_tuning|assistants|threads|conversations|containers|evals|videos|skills)(?:\/.*)?|responses\/[^/]+\/cancel|messages\/batches(?:\/.*)?))$/;
/** Sessions of speech: their model is inside of `session`. */
const REALTIME = /\/realtime(?:\/|$)/;
/** What only Google's API has. */
const GOOGLE_ONLY = /\/v1beta\/|\/(?:interactions$|cachedContents|fileSearchStores|operations)/;
/** What is stored under these paths may use any model, wherever the server mounts them and in whichever case. */
const STORE_SEGMENT =
  /\/(?:files|uploads|batches|cachedContents|fileSearchStores|operations|vector_stores|fine_tuning|assistants|threads|conversations|containers|evals|videos|skills)(?:\/|$)|\/responses\/[^/]+\/cancel$/i;
/** Of these, the paths whose body names the model that will work. */
const STORE_BY_MODEL = /\/(?:assistants(?:\/[^/]+)?|videos|threads(?:\/[^/]+)?\/runs)\/?$/i;
const MODELS = /\/(?:v1|v1beta)\/models(?:\/(.+))?$|^\/models(?:\/(.+))?$/;

export function dialectOf(path: string): Dialect {
  for (const [suffix, format, free = false] of SUFFIXES) {
    // The threads of OpenAI's older API hold messages too.
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
  // Google's servers read an encoded colon as one, so a model behind it must be found too.
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
