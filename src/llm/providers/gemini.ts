/**
 * Describes Gemini. The Gemini API is native, and other conversations are translated to it.
 */
import { slashedName } from "../../http/request-path.ts";
import { type Format, isConversation } from "../request/dialect.ts";
import { ModelNameError, type Provider, STANDARD_CHAT, type UpstreamCall, withQuery } from "../request/provider.ts";

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

export function geminiFormat(client: Format): Format | undefined {
  if (isConversation(client)) return "generateContent";
  if (client === "embeddings") return "embedContent";
  return client === "opaque" ? client : undefined;
}

export function geminiPath(call: UpstreamCall, modelPath: string): string {
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
