/**
 * Translates OpenAI embeddings requests for Titan, Cohere, and Nova on Bedrock (`invoke`), Gemini
 * (`batchEmbedContents`), and Vertex (`predict`).
 */

import { isMembers, type Members } from "../../json/json.ts";
import type { Format } from "../request/dialect.ts";
import { compact, type Losses, NOT_SUPPORTED, TranslationError, UpstreamResponseError } from "./conversation.ts";
import type { Translation, TranslationContext } from "./translation.ts";

interface EmbeddingInput {
  readonly texts: readonly string[];
  readonly dimensions: number | undefined;
  /** OpenAI has no equivalent of the provider's task type, but clients may send it. */
  readonly purpose: string | undefined;
}

interface EmbeddingOutput {
  readonly vectors: readonly unknown[];
  readonly tokens: number | undefined;
}

interface EmbeddingFormat {
  readonly purpose?: "input_type" | "task_type";
  /** Set if the provider accepts only one text per request. Lists are then split into several requests. */
  readonly acceptsOneText?: true;
  request(input: EmbeddingInput, model: string): Members;
  answer(body: Members): EmbeddingOutput;
}

/** OpenAI allows at most this many texts per request. */
const MAX_TEXTS = 2048;

const KNOWN = new Set(["model", "input", "dimensions", "encoding_format", "user"]);

export function embeddingsInto(format: Format): Translation | undefined {
  if (format !== "invoke" && format !== "embedContent" && format !== "predict") return undefined;
  const formatFor = (model: string): EmbeddingFormat =>
    format === "invoke" ? bedrockFormat(model) : format === "predict" ? VERTEX : GEMINI;
  return {
    parts(body, context) {
      const { input } = body;
      if (formatFor(context.model).acceptsOneText !== true || !Array.isArray(input) || input.length < 2)
        return undefined;
      if (!input.every((text) => typeof text === "string")) return undefined;
      if (input.length > MAX_TEXTS) throw new TranslationError("input", `a list has at most ${MAX_TEXTS} texts`);
      context.parts = input.length;
      return input.map((text) => ({ ...body, input: text }));
    },
    request(body, context) {
      const form = formatFor(context.model);
      context.base64Vectors = body.encoding_format === "base64";
      return context.losses.passInto(form.request(readInput(body, form, context.losses), context.model));
    },
    response(body, context) {
      const form = formatFor(context.model);
      const vectors = context.parts === undefined ? form.answer(body).vectors : joinVectors(body, context.parts, form);
      return writeResponse(vectors, context);
    },
    counts: {
      inputTokens: (answer) => (format === "invoke" ? bedrockTokens(answer) : formatFor("").answer(answer).tokens),
      withInputTokens: (body, tokens) => ({ ...body, usage: { prompt_tokens: tokens, total_tokens: tokens } }),
    },
    stream() {
      throw new UpstreamResponseError(502, "the provider sent a stream of embeddings");
    },
  };
}

function readInput(body: Members, form: EmbeddingFormat, losses: Losses): EmbeddingInput {
  const { input, dimensions, encoding_format: encoding } = body;
  const texts = typeof input === "string" ? [input] : input;
  if (!Array.isArray(texts) || texts.length === 0)
    throw new TranslationError("input", "expected a text or a list of texts");
  if (!texts.every((text) => typeof text === "string"))
    throw new TranslationError("input", `a list of tokens ${NOT_SUPPORTED}`);
  if (encoding !== undefined && encoding !== null && encoding !== "float" && encoding !== "base64")
    throw new TranslationError("encoding_format", "expected float or base64");
  if (dimensions !== undefined && dimensions !== null && !Number.isInteger(dimensions))
    throw new TranslationError("dimensions", "expected a whole number");
  for (const [name, value] of Object.entries(body))
    if (!KNOWN.has(name) && name !== form.purpose && value !== null) losses.lose(name, value);
  const purpose = form.purpose && body[form.purpose];
  return {
    texts,
    dimensions: typeof dimensions === "number" ? dimensions : undefined,
    purpose: typeof purpose === "string" ? purpose : undefined,
  };
}

function joinVectors({ parts }: Members, count: number, form: EmbeddingFormat): readonly unknown[] {
  const answers = toList(parts);
  if (answers.length !== count) throw new UpstreamResponseError(502, "the provider's response cannot be read");
  return answers.map((answer) => form.answer(answer).vectors[0]);
}

function writeResponse(vectors: readonly unknown[], { model, base64Vectors }: TranslationContext): Members {
  if (vectors.length === 0) throw new UpstreamResponseError(502, "the provider's response has no embeddings");
  const data = vectors.map((vector, index) => {
    if (!Array.isArray(vector) || !vector.every((value) => typeof value === "number"))
      throw new UpstreamResponseError(502, "the provider's response has an embedding that is no list of numbers");
    return { object: "embedding", index, embedding: base64Vectors ? encodeBase64(vector) : vector };
  });
  return { object: "list", data, model, usage: { prompt_tokens: 0, total_tokens: 0 } };
}

/** OpenAI encodes vectors as little-endian 32-bit floats. */
function encodeBase64(vector: readonly number[]): string {
  const bytes = Buffer.alloc(vector.length * 4);
  vector.forEach((value, i) => void bytes.writeFloatLE(value, i * 4));
  return bytes.toString("base64");
}

const TITAN: EmbeddingFormat = {
  acceptsOneText: true,
  request({ texts, dimensions }, model) {
    // Titan v1 has a fixed size and rejects the parameter.
    const hasSizes = !/titan-embed-text-v1|titan-embed-g1/.test(model);
    if (dimensions !== undefined && !hasSizes) throw new TranslationError("dimensions", NOT_SUPPORTED);
    return compact({ inputText: texts[0], dimensions });
  },
  answer: ({ embedding }) => ({ vectors: [embedding], tokens: undefined }),
};

const COHERE: EmbeddingFormat = {
  purpose: "input_type",
  request({ texts, dimensions, purpose }, model) {
    if (dimensions !== undefined && !/embed-v4/.test(model)) throw new TranslationError("dimensions", NOT_SUPPORTED);
    const input_type = purpose ?? "search_document";
    return compact({ texts, input_type, embedding_types: ["float"], output_dimension: dimensions });
  },
  answer({ embeddings }) {
    const vectors = isMembers(embeddings) ? embeddings.float : embeddings;
    return { vectors: Array.isArray(vectors) ? vectors : [], tokens: undefined };
  },
};

const NOVA: EmbeddingFormat = {
  purpose: "task_type",
  acceptsOneText: true,
  request: ({ texts, dimensions, purpose }) => ({
    taskType: "SINGLE_EMBEDDING",
    singleEmbeddingParams: compact({
      embeddingPurpose: purpose ?? "GENERIC_INDEX",
      embeddingDimension: dimensions,
      text: { truncationMode: "END", value: texts[0] },
    }),
  }),
  answer: ({ embeddings }) => ({
    vectors: toList(embeddings).map((one) => one.embedding),
    tokens: undefined,
  }),
};

/** Titan reports the count in the body. */
function bedrockTokens({ inputTextTokenCount: tokens }: Members): number | undefined {
  return toCount(tokens);
}

/** Model names may have a region prefix or be the end of an inference profile's ARN. */
function bedrockFormat(model: string): EmbeddingFormat {
  if (/(?:^|[./])cohere\.embed-/.test(model)) return COHERE;
  if (/(?:^|[./])amazon\.titan-embed-/.test(model)) return TITAN;
  if (/(?:^|[./])amazon\.nova.*embeddings/.test(model)) return NOVA;
  throw new TranslationError("model", "is no model for embeddings that can be asked in this format");
}

const GEMINI: EmbeddingFormat = {
  purpose: "task_type",
  request: ({ texts, dimensions, purpose }, model) => ({
    requests: texts.map((text) =>
      compact({
        model: model.includes("/") ? model : `models/${model}`,
        content: { parts: [{ text }] },
        taskType: purpose,
        outputDimensionality: dimensions,
      }),
    ),
  }),
  answer: ({ embeddings, usageMetadata: usage }) => ({
    vectors: toList(embeddings).map((one) => one.values),
    tokens: isMembers(usage) ? toCount(usage.promptTokenCount) : undefined,
  }),
};

const VERTEX: EmbeddingFormat = {
  purpose: "task_type",
  request: ({ texts, dimensions, purpose }) =>
    compact({
      instances: texts.map((content) => compact({ content, task_type: purpose })),
      parameters: dimensions === undefined ? undefined : { outputDimensionality: dimensions },
    }),
  answer({ predictions }) {
    const found = toList(predictions).map(({ embeddings }) => (isMembers(embeddings) ? embeddings : {}));
    const counts = found.map(({ statistics }) => (isMembers(statistics) ? toCount(statistics.token_count) : undefined));
    const known = counts.filter((count) => count !== undefined);
    return {
      vectors: found.map(({ values }) => values),
      tokens: known.length === counts.length ? known.reduce((sum, count) => sum + count, 0) : undefined,
    };
  },
};

function toList(value: unknown): readonly Members[] {
  return Array.isArray(value) ? value.map((one) => (isMembers(one) ? one : {})) : [];
}

function toCount(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? Math.round(value) : undefined;
}
