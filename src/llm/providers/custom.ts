/**
 * Describes a server whose APIs and paths the configuration defines. Conversations in other formats are translated to
 * the first format of the list that the gateway can write.
 */
import { type Format, isConversation } from "../request/dialect.ts";
import { type CredentialForm, modelSegment, type Provider, withQuery } from "../request/provider.ts";
import { ANTHROPIC_VERSION } from "./anthropic.ts";
import { chatVariantFor } from "./openai.ts";

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

export interface CustomProvider {
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
