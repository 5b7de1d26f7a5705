/**
 * Anthropic: messages and token counting are native, chat requests are translated.
 */
import { type Provider, withQuery } from "../dialects/provider.ts";

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
    maxTokensMember: "max_tokens",
    upstreamFormat: (client) =>
      client === "messages" || client === "chat" ? "messages" : client === "opaque" ? "opaque" : undefined,
    path: (call, basePath) =>
      withQuery(
        `${basePath}${call.counts ? "/messages/count_tokens" : call.format === "messages" ? "/messages" : call.suffix}`,
        call.query,
      ),
  };
}
