/**
 * OpenAI, and every server that speaks its API. Chat, responses and embeddings are native; what else lies below the
 * same base path (images, audio, moderation) passes as it is. Other dialects become chat; so do responses where a server
 * has only chat.
 */
import { type Format, isConversation } from "../request/dialect.ts";
import { CHAT_HABITS, type ChatHabits, type Provider, withQuery } from "../request/provider.ts";

const NATIVE = new Set<Format>(["chat", "embeddings", "opaque"]);
/** OpenAI's newer models refuse the older member. */
export const OPENAI_CHAT: ChatHabits = { ...CHAT_HABITS, maxTokens: "max_completion_tokens", topK: false };

export interface CompatibleOptions {
  /** Whether chat streams carry usage if they are asked to. */
  readonly streamUsage: boolean;
  readonly responses: boolean;
  readonly chat: ChatHabits;
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
    chat: options.chat,
    upstreamFormat(client) {
      if (NATIVE.has(client) || (client === "responses" && options.responses)) return client;
      return isConversation(client) ? "chat" : undefined;
    },
    path: (call, basePath) => withQuery(pathBelow(basePath, call.suffix), call.query),
    upgrades: (path) => path.endsWith("/realtime"),
  };
}

/** What names a newer version of the API does not lie below the older one (`/v2/rerank`). */
function pathBelow(basePath: string, suffix: string): string {
  return suffix.startsWith("/v2/") ? basePath.replace(/(?:\/compatibility)?\/v1$/, "") + suffix : basePath + suffix;
}
