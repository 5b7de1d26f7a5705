/**
 * Describes OpenAI, OpenAI-compatible servers, and presets for well-known servers.
 */
import { type Format, isConversation } from "../request/dialect.ts";
import { type ChatVariant, type Provider, STANDARD_CHAT, withQuery } from "../request/provider.ts";

const NATIVE = new Set<Format>(["chat", "embeddings", "opaque"]);
/** OpenAI's newer models reject `max_tokens`. */
export const OPENAI_CHAT: ChatVariant = { ...STANDARD_CHAT, maxTokens: "max_completion_tokens", topK: false };

export interface CompatibleOptions {
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
