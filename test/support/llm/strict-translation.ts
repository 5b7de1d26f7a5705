/**
 * Translates between two dialects and rejects everything that cannot be translated.
 */
import assert from "node:assert/strict";
import type { Members } from "../../../src/json/json.ts";
import { Losses, ToolNames } from "../../../src/llm/dialects/conversation.ts";
import { translationBetween } from "../../../src/llm/dialects/translate.ts";
import type { OutEvent, Translation, TranslationContext } from "../../../src/llm/dialects/translation.ts";
import { STANDARD_CHAT } from "../../../src/llm/models/providers.ts";
import type { Format } from "../../../src/llm/request/dialect.ts";

export function context(overrides: Partial<TranslationContext> = {}): TranslationContext {
  let ids = 0;
  return {
    model: "upstream-model",
    stream: false,
    chat: { ...STANDARD_CHAT, maxTokens: "max_completion_tokens" },
    losses: new Losses("refuse"),
    toolNames: new ToolNames(),
    betas: ["context-management-2025-06-27"],
    newId: () => `id${++ids}`,
    createdSeconds: 1_700_000_000,
    includeUsage: true,
    ...overrides,
  };
}

export function between(client: Format, provider: Format): Translation {
  const translation = translationBetween(client, provider);
  assert.ok(translation, `${client} to ${provider}`);
  return translation;
}

export function streamThrough(
  translation: Translation,
  events: readonly (readonly [string, Members])[],
  overrides: Partial<TranslationContext> = {},
): OutEvent[] {
  const stream = translation.stream(context({ stream: true, ...overrides }));
  return [...events.flatMap(([type, data]) => stream.event(type, data)), ...stream.end()];
}

/** A chat request of one message. */
export const user = (content: unknown) => ({ messages: [{ role: "user", content }] });
