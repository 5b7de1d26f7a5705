/**
 * Describes Anthropic. The Messages API is native, and other conversations are translated to it.
 */
import { isConversation } from "../request/dialect.ts";
import { type Provider, STANDARD_CHAT, withQuery } from "../request/provider.ts";

export const ANTHROPIC_VERSION = "2023-06-01";

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
