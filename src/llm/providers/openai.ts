/**
 * OpenAI, and every server that speaks its API. Chat, responses and embeddings are native; what else lies below the
 * same base path (images, audio, moderation) passes as it is.
 */
import type { Format } from "../dialects/dialect.ts";
import { type Provider, withQuery } from "../dialects/provider.ts";

const NATIVE = new Set<Format>(["chat", "responses", "embeddings", "opaque"]);

export function openAi(): Provider {
  return { ...openAiCompatible("openai", "https://api.openai.com/v1", true), maxTokensMember: "max_completion_tokens" };
}

export function openAiCompatible(name: string, baseUrl: string, asksForStreamUsage: boolean): Provider {
  const url = new URL(baseUrl);
  return {
    name,
    origin: url.origin,
    basePath: url.pathname.replace(/\/+$/, ""),
    credential: "bearer",
    headers: {},
    modelInBody: true,
    asksForStreamUsage,
    maxTokensMember: "max_tokens",
    upstreamFormat: (client) => (NATIVE.has(client) ? client : client === "messages" ? "chat" : undefined),
    path: (call, basePath) => withQuery(basePath + call.suffix, call.query),
  };
}
