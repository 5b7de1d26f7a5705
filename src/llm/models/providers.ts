/**
 * Describes the LLM providers with data and pure functions: which formats a provider accepts, its paths, its
 * credential, and the features that some servers lack.
 */
import { ExpectedError } from "../../base/errors.ts";
import type { HeaderList } from "../../http/headers.ts";
import { pathSegment, slashedName } from "../../http/request-path.ts";
import { isMembers, type Members } from "../../json/json.ts";
import type { ChatVariant } from "../dialects/translation.ts";
import { type Format, isConversation } from "../request/dialect.ts";
import { isStreamOptionsError, mayNameField } from "../request/llm-errors.ts";

// Not in the folder of the dialects, which are loaded on demand.
export const STANDARD_CHAT: ChatVariant = {
  maxTokens: "max_tokens",
  topK: true,
  user: true,
  seed: "seed",
  required: "required",
};

export type CredentialForm = "bearer" | "x-api-key" | "api-key" | "x-goog-api-key" | "aws";

export interface UpstreamCall {
  readonly format: Format;
  readonly suffix: string;
  readonly model: string;
  readonly stream: boolean;
  readonly counts: boolean;
  /** Only untranslated requests forward the client's query. */
  readonly query: string;
}

interface ModelListEndpoint {
  readonly path: string;
  readonly member: string;
  readonly id: string;
}

export interface Provider {
  /** True for servers with OpenAI's API that may lack its Responses API. */
  readonly mayLackResponses?: boolean;
  /** True for servers with OpenAI's API that may reject parts of a chat completion. */
  readonly mayLackFields?: boolean;
  /** Telemetry (`gen_ai.provider.name`) and price catalogs use this name. */
  readonly name: string;
  readonly origin: string;
  readonly basePath: string;
  readonly credential: CredentialForm;
  /** A header is omitted if the client sets it. */
  readonly headers: Readonly<Record<string, string>>;
  upstreamFormat(client: Format, model: string): Format | undefined;
  path(call: UpstreamCall, basePath: string): string;
  readonly modelInBody: boolean;
  readonly asksForStreamUsage: boolean;
  readonly chat: ChatVariant;
  /** Set if the provider lists its models below the base path. */
  readonly modelList?: ModelListEndpoint | undefined;
  /** Set if the path names the model of multipart forms too, so the gateway must parse them. */
  readonly readsForms?: true;
  upgrades?(path: string): boolean;
  adaptBody?(body: Members, call: UpstreamCall): Members;
  needsAdapting?(call: Pick<UpstreamCall, "format">): boolean;
}

export class ModelNameError extends ExpectedError {
  constructor() {
    super("the model's name cannot be part of the provider's path");
    this.name = "ModelNameError";
  }
}

function modelSegment(model: string): string {
  const segment = pathSegment(model);
  if (segment === undefined) throw new ModelNameError();
  return segment;
}

export function withQuery(path: string, query: string): string {
  return query === "" ? path : `${path}?${query}`;
}

/** `nowMs` is wall-clock time. Returns undefined unless a header holds a positive delay or a future date. */
export function retryAfterSeconds(headers: HeaderList, nowMs: number): number | undefined {
  const fine = positive(Number(headers.get("retry-after-ms")) / 1000);
  if (fine !== undefined) return fine;
  const value = headers.get("retry-after");
  if (value === undefined) return undefined;
  if (/^\s*\d/.test(value)) return positive(Number(value));
  return positive((Date.parse(value) - nowMs) / 1000);
}

function positive(seconds: number): number | undefined {
  return Number.isFinite(seconds) && seconds > 0 ? seconds : undefined;
}

const NAMES = ["x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "x-goog-request-id"];
/** Log lines include the id, so only safe characters are allowed. */
const FORM = /^[\w.:/+=-]{1,128}$/;

export function providerRequestId(headers: HeaderList): string | undefined {
  for (const name of NAMES) {
    const value = headers.get(name);
    if (value !== undefined && FORM.test(value)) return value;
  }
  return undefined;
}

const NATIVE = new Set<Format>(["chat", "embeddings", "opaque"]);
/** OpenAI's newer models reject `max_tokens`. */
const OPENAI_CHAT: ChatVariant = { ...STANDARD_CHAT, maxTokens: "max_completion_tokens", topK: false };

interface CompatibleOptions {
  readonly streamUsage: boolean;
  readonly responses: boolean;
  readonly chat: ChatVariant;
}

export function openAi(): Provider {
  return openAiCompatible("openai", "https://api.openai.com/v1", {
    streamUsage: true,
    responses: true,
    chat: OPENAI_CHAT,
  });
}

export function openAiCompatible(name: string, baseUrl: string, options: CompatibleOptions): Provider {
  const url = new URL(baseUrl);
  return {
    name,
    origin: url.origin,
    basePath: url.pathname.replace(/\/+$/, ""),
    credential: "bearer",
    headers: {},
    modelInBody: true,
    asksForStreamUsage: options.streamUsage,
    mayLackResponses: options.responses && url.hostname !== "api.openai.com",
    mayLackFields: url.hostname !== "api.openai.com",
    chat: options.chat,
    modelList: { path: "/models", member: "data", id: "id" },
    upstreamFormat(client) {
      if (NATIVE.has(client) || (client === "responses" && options.responses)) return client;
      return isConversation(client) ? "chat" : undefined;
    },
    path: (call, basePath) => withQuery(pathBelow(basePath, call.suffix), call.query),
    upgrades: (path) => path.endsWith("/realtime"),
  };
}

/** Paths of a newer API version, such as `/v2/rerank`, replace the `/v1` of the base path. */
function pathBelow(basePath: string, suffix: string): string {
  return suffix.startsWith("/v2/") ? basePath.replace(/(?:\/compatibility)?\/v1$/, "") + suffix : basePath + suffix;
}

interface Preset {
  readonly baseUrl: string;
  readonly responses?: true;
  /** Set if the server does not accept `stream_options`. */
  readonly streamUsage?: false;
}

export const PRESETS = {
  baseten: { baseUrl: "https://inference.baseten.co/v1" },
  cerebras: { baseUrl: "https://api.cerebras.ai/v1" },
  cohere: { baseUrl: "https://api.cohere.ai/compatibility/v1", streamUsage: false },
  copilot: { baseUrl: "https://api.githubcopilot.com", responses: true },
  deepinfra: { baseUrl: "https://api.deepinfra.com/v1/openai" },
  deepseek: { baseUrl: "https://api.deepseek.com/v1" },
  fireworks: { baseUrl: "https://api.fireworks.ai/inference/v1", responses: true },
  groq: { baseUrl: "https://api.groq.com/openai/v1", responses: true },
  huggingface: { baseUrl: "https://router.huggingface.co/v1", responses: true },
  mistral: { baseUrl: "https://api.mistral.ai/v1", streamUsage: false },
  ollama: { baseUrl: "http://localhost:11434/v1", responses: true },
  openrouter: { baseUrl: "https://openrouter.ai/api/v1", responses: true },
  togetherai: { baseUrl: "https://api.together.xyz/v1" },
  xai: { baseUrl: "https://api.x.ai/v1", responses: true },
} as const satisfies Readonly<Record<string, Preset>>;

/** These servers reject `top_k`. */
const WITHOUT_TOP_K = new Set(["cerebras", "cohere", "deepseek", "groq", "xai"]);

export function chatVariantFor(name: string): ChatVariant {
  if (name === "openai") return OPENAI_CHAT;
  if (name === "mistral" || name === "api.mistral.ai")
    return { ...STANDARD_CHAT, topK: false, user: false, seed: "random_seed", required: "any" };
  return WITHOUT_TOP_K.has(name) ? { ...STANDARD_CHAT, topK: false } : STANDARD_CHAT;
}

export function getPreset(name: keyof typeof PRESETS): Preset {
  return PRESETS[name];
}

const ANTHROPIC_VERSION = "2023-06-01";

export function anthropic(): Provider {
  return {
    name: "anthropic",
    origin: "https://api.anthropic.com",
    basePath: "/v1",
    credential: "x-api-key",
    headers: { "anthropic-version": ANTHROPIC_VERSION },
    modelInBody: true,
    asksForStreamUsage: false,
    chat: STANDARD_CHAT,
    modelList: { path: "/models?limit=1000", member: "data", id: "id" },
    upstreamFormat: (client) => (client === "opaque" ? "opaque" : isConversation(client) ? "messages" : undefined),
    path: (call, basePath) =>
      withQuery(
        `${basePath}${call.counts ? "/messages/count_tokens" : call.format === "messages" ? "/messages" : call.suffix}`,
        call.query,
      ),
  };
}

interface AzureOptions {
  readonly resourceName: string;
  readonly resourceType: "openAI" | "foundry";
  readonly apiVersion: string | undefined;
}

export function azure(options: AzureOptions): Provider {
  const domain = options.resourceType === "foundry" ? "services.ai.azure.com" : "openai.azure.com";
  const base = openAiCompatible("azure", `https://${options.resourceName}.${domain}/openai/v1`, {
    streamUsage: true,
    responses: true,
    chat: OPENAI_CHAT,
  });
  const { apiVersion } = options;
  // Azure lists the models of the region, even those that are not deployed.
  const shared: Provider = { ...base, credential: "api-key", modelList: undefined };
  if (apiVersion === undefined || apiVersion === "v1") return shared;
  const version = `api-version=${encodeURIComponent(apiVersion)}`;
  if (apiVersion === "preview")
    return { ...shared, path: (call, basePath) => withQuery(basePath + call.suffix, version) };
  return {
    ...shared,
    basePath: "/openai",
    readsForms: true,
    // The Responses API has no deployment in its path.
    path: (call, basePath) =>
      withQuery(
        call.format === "responses"
          ? `${basePath}/responses`
          : `${basePath}/deployments/${modelSegment(call.model)}${call.suffix}`,
        version,
      ),
  };
}

export function bedrock(region: string): Provider {
  return {
    name: "aws.bedrock",
    origin: `https://bedrock-runtime.${region}.amazonaws.com`,
    basePath: "",
    credential: "aws",
    headers: {},
    modelInBody: false,
    asksForStreamUsage: false,
    chat: STANDARD_CHAT,
    upstreamFormat: bedrockFormat,
    path(call, basePath) {
      const model = `${basePath}/model/${modelId(call.model)}`;
      const isNative = call.suffix.startsWith("/model/");
      const verb = isNative ? call.suffix.slice(call.suffix.lastIndexOf("/") + 1) : upstreamVerb(call);
      return withQuery(`${model}/${verb}`, call.query);
    },
  };
}

/** Bedrock expects the slashes of an ARN to be encoded. */
function modelId(model: string): string {
  const id = model.startsWith("arn:") ? slashedName(model, "%2F") : pathSegment(model);
  if (id === undefined) throw new ModelNameError();
  return id;
}

function upstreamVerb({ format, stream }: UpstreamCall): string {
  if (format === "invoke") return stream ? "invoke-with-response-stream" : "invoke";
  return stream ? "converse-stream" : "converse";
}

/** Also matches model names with a region prefix and the ARNs of inference profiles. */
const CLAUDE = /(?:^|[./])anthropic\.claude/;

function bedrockFormat(client: Format, model: string): Format | undefined {
  if (client === "messages" && CLAUDE.test(model)) return "invoke";
  if (client === "embeddings") return "invoke";
  if (isConversation(client) || client === "converse") return "converse";
  return client === "invoke" || client === "opaque" ? client : undefined;
}

export function gemini(): Provider {
  return {
    name: "gcp.gemini",
    origin: "https://generativelanguage.googleapis.com",
    basePath: "/v1beta",
    credential: "x-goog-api-key",
    headers: {},
    modelInBody: false,
    asksForStreamUsage: false,
    chat: STANDARD_CHAT,
    modelList: { path: "/models?pageSize=1000", member: "models", id: "name" },
    upstreamFormat: geminiFormat,
    upgrades: (path) => path.startsWith("/ws/google.ai.generativelanguage."),
    path(call, basePath) {
      if (call.format === "embedContent") return `${basePath}/models/${encodeModel(call.model)}:batchEmbedContents`;
      // A path without a verb, such as `/files` or `/cachedContents`, does not call a model.
      if (call.format === "opaque" && !call.suffix.includes(":")) return withQuery(basePath + call.suffix, call.query);
      return geminiPath(call, `${basePath}/models/${encodeModel(call.model)}`);
    },
  };
}

function geminiFormat(client: Format): Format | undefined {
  if (isConversation(client)) return "generateContent";
  if (client === "embeddings") return "embedContent";
  return client === "opaque" ? client : undefined;
}

function geminiPath(call: UpstreamCall, modelPath: string): string {
  const verb = call.suffix.slice(call.suffix.lastIndexOf(":") + 1);
  const isNative = call.suffix.includes(":");
  if (isNative) return withQuery(`${modelPath}:${verb}`, call.query);
  return call.stream ? `${modelPath}:streamGenerateContent?alt=sse` : `${modelPath}:generateContent`;
}

/** Model names may contain slashes. */
function encodeModel(model: string): string {
  const name = slashedName(model, "/");
  if (name === undefined) throw new ModelNameError();
  return name;
}

interface VertexOptions {
  readonly projectId: string;
  readonly region: string;
}

const CLAUDE_VERSION = "vertex-2023-10-16";

export function vertex(options: VertexOptions): Provider {
  const { projectId, region } = options;
  const host = region === "global" ? "aiplatform.googleapis.com" : `${region}-aiplatform.googleapis.com`;
  const location = `/projects/${projectId}/locations/${region}`;
  return {
    name: "gcp.vertex_ai",
    origin: `https://${host}`,
    basePath: "/v1",
    credential: "bearer",
    headers: {},
    modelInBody: false,
    asksForStreamUsage: false,
    chat: STANDARD_CHAT,
    upstreamFormat: (client, model) => (isClaude(model) ? claudeFormat(client) : googleFormat(client)),
    path(call, basePath) {
      if (isClaude(call.model)) {
        const claude = `${basePath}${location}/publishers/anthropic/models`;
        if (call.counts) return `${claude}/count-tokens:rawPredict`;
        return `${claude}/${modelSegment(call.model)}:${call.stream ? "streamRawPredict" : "rawPredict"}`;
      }
      const google = `${basePath}${location}/publishers/google/models/${modelSegment(call.model)}`;
      return call.format === "predict" ? `${google}:predict` : geminiPath(call, google);
    },
    needsAdapting: (call) => call.format === "messages",
    adaptBody(body, call) {
      const { model: _inPath, ...rest } = body;
      // Only token counting has the model in the body.
      return { anthropic_version: CLAUDE_VERSION, ...(call.counts ? { model: call.model } : {}), ...rest };
    },
  };
}

function isClaude(model: string): boolean {
  return model.startsWith("claude");
}

function googleFormat(client: Format): Format | undefined {
  return client === "embeddings" ? "predict" : geminiFormat(client);
}

function claudeFormat(client: Format): Format | undefined {
  return isConversation(client) ? "messages" : undefined;
}

/** The names of the formats in the configuration, with the internal format and the default path of each. */
export const CUSTOM_FORMATS = {
  completions: { format: "chat", path: "/chat/completions" },
  messages: { format: "messages", path: "/messages" },
  responses: { format: "responses", path: "/responses" },
  embeddings: { format: "embeddings", path: "/embeddings" },
} as const satisfies Readonly<Record<string, { readonly format: Format; readonly path: string }>>;

export const MODEL_PLACEHOLDER = "{model}";

/** Requests cannot be translated to the Responses API. */
const WRITABLE: ReadonlySet<Format> = new Set(["chat", "messages"]);

interface CustomProvider {
  readonly baseUrl: string;
  readonly name?: string | undefined;
  readonly keyHeader: "authorization" | Exclude<CredentialForm, "bearer" | "aws">;
  readonly streamUsage: boolean;
  readonly formats: readonly { readonly type: keyof typeof CUSTOM_FORMATS; readonly path?: string | undefined }[];
}

export function customProvider({ baseUrl, name, keyHeader, streamUsage, formats }: CustomProvider): Provider {
  const url = new URL(baseUrl);
  const known = name ?? url.hostname;
  const paths = new Map<Format, string>(
    formats.map(({ type, path }) => [CUSTOM_FORMATS[type].format, path ?? CUSTOM_FORMATS[type].path]),
  );
  const written = [...paths.keys()].find((format) => WRITABLE.has(format));
  return {
    name: known,
    origin: url.origin,
    basePath: url.pathname.replace(/\/+$/, ""),
    credential: keyHeader === "authorization" ? "bearer" : keyHeader,
    headers: paths.has("messages") ? { "anthropic-version": ANTHROPIC_VERSION } : {},
    modelInBody: true,
    asksForStreamUsage: streamUsage,
    chat: chatVariantFor(known),
    upstreamFormat: (client) => (paths.has(client) ? client : isConversation(client) ? written : undefined),
    path({ format, model, counts, query }, basePath) {
      const path = paths.get(format) ?? "";
      const named = path.includes(MODEL_PLACEHOLDER) ? path.replaceAll(MODEL_PLACEHOLDER, modelSegment(model)) : path;
      return withQuery(`${basePath}${named}${counts ? "/count_tokens" : ""}`, query);
    },
  };
}

/** `namespaces` are groups of tools in requests of the Responses API, which Codex sends for MCP servers. */
export type Feature = "stream_options" | "responses" | "namespaces" | OmittedFeature;

/** A call can be sent without these features of its body. `developer` is the role of messages. */
export type OmittedFeature = "parallel_tool_calls" | "developer";

interface FeatureCheck {
  /** Whether the status can mean that the server lacks the feature. */
  readonly hasStatus: (status: number) => boolean;
  readonly isNamed: (body: string) => boolean;
  /** True if nothing names the feature, so that a call without it that fails with such a status shows another cause. */
  readonly isGuess?: true;
  /** The log line and the reason of the repeated attempt. */
  readonly rejection: string;
  readonly consequence: string;
}

/** A model, a stored response, or a file that does not exist is also 404. */
const NAMES_OBJECT = /model|prompt|previous|conversation|file_|file-|_id\b|with id/i;

export const FEATURES: Readonly<Record<Feature, FeatureCheck>> = {
  stream_options: {
    hasStatus: mayNameField,
    isNamed: isStreamOptionsError,
    rejection: "the provider rejects stream_options",
    consequence: "the tokens of its streams are estimated",
  },
  responses: {
    hasStatus: (status) => status === 404 || status === 405 || status === 501,
    isNamed: (body) => !NAMES_OBJECT.test(body),
    isGuess: true,
    rejection: "the provider has no Responses API",
    consequence: "these requests are translated to chat completions",
  },
  namespaces: {
    hasStatus: mayNameField,
    isNamed: (body) => /namespace/i.test(body),
    rejection: "the provider rejects namespaces of tools",
    consequence: "these requests are translated to chat completions",
  },
  parallel_tool_calls: {
    hasStatus: mayNameField,
    isNamed: (body) => /parallel_tool_calls/i.test(body),
    rejection: "the provider rejects parallel_tool_calls",
    consequence: "calls are sent without it",
  },
  developer: {
    hasStatus: mayNameField,
    // Templates of chat messages name only the role, or only the roles that they know.
    isNamed: (body) => /developer|\brole/i.test(body),
    isGuess: true,
    rejection: "the provider rejects the role developer",
    consequence: "these messages are sent with the role system",
  },
};

const OMITTED: readonly (readonly [OmittedFeature, Buffer])[] = [
  ["parallel_tool_calls", Buffer.from('"parallel_tool_calls"')],
  ["developer", Buffer.from('"developer"')],
];

/** Returns the features that the body may use. Texts can contain the names too. */
export function omittedFeatures(body: Buffer): readonly OmittedFeature[] {
  return OMITTED.filter(([, written]) => body.includes(written)).map(([feature]) => feature);
}

export function withoutFeature(body: Members, feature: OmittedFeature): Members {
  if (feature === "parallel_tool_calls") {
    const { parallel_tool_calls: _, ...others } = body;
    return others;
  }
  const { messages } = body;
  if (!Array.isArray(messages)) return body;
  return { ...body, messages: messages.map((one) => (isDeveloper(one) ? { ...one, role: "system" } : one)) };
}

function isDeveloper(message: unknown): message is Members {
  return isMembers(message) && message.role === "developer";
}

/** Forgets features that a server seemed to lack, if a call without them gets this status too. */
export function forgetGuesses(rejected: Set<Feature>, status: number): void {
  for (const feature of rejected)
    if (FEATURES[feature].isGuess && FEATURES[feature].hasStatus(status)) rejected.delete(feature);
}

/** Returns the feature of the call that the server rejected. */
export function rejectedFeature(used: readonly Feature[], status: number, body: string): Feature | undefined {
  return used.find((feature) => FEATURES[feature].hasStatus(status) && FEATURES[feature].isNamed(body));
}
