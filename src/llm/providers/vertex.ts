/**
 * Describes Vertex AI. Gemini models use the Gemini API, and Claude models use the Messages API.
 */
import { type Format, isConversation } from "../request/dialect.ts";
import { modelSegment, type Provider, STANDARD_CHAT } from "../request/provider.ts";
import { geminiFormat, geminiPath } from "./gemini.ts";

export interface VertexOptions {
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
