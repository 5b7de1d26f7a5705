/**
 * Translates one request, response or stream between two dialects.
 */
import assert from "node:assert/strict";
import type { Members } from "../../../src/json/json.ts";
import { Losses, ToolNames, type Unsupported } from "../../../src/llm/dialects/conversation.ts";
import { translationBetween } from "../../../src/llm/dialects/translate.ts";
import type { OutEvent, TranslationContext } from "../../../src/llm/dialects/translation.ts";
import { STANDARD_CHAT } from "../../../src/llm/models/providers.ts";
import type { Format } from "../../../src/llm/request/dialect.ts";

export function context(model = "m", how: Unsupported = "drop"): TranslationContext {
  let ids = 0;
  return {
    model,
    stream: false,
    chat: STANDARD_CHAT,
    losses: new Losses(how),
    toolNames: new ToolNames(),
    betas: [],
    newId: () => `id${++ids}`,
    createdSeconds: 1,
    includeUsage: true,
  };
}

export function request(client: Format, provider: Format, body: Members, using = context()): Members {
  const translation = translationBetween(client, provider);
  assert.ok(translation);
  return translation.request(body, using);
}

export function response(client: Format, provider: Format, body: Members, using = context()): Members {
  const translation = translationBetween(client, provider);
  assert.ok(translation);
  return translation.response(body, using);
}

export function stream(client: Format, provider: Format, events: readonly Members[], using = context()): OutEvent[] {
  const running = translationBetween(client, provider)?.stream(using);
  assert.ok(running);
  const written = events.flatMap((data) => {
    const out = running.event(String(data.type ?? ""), data);
    // The gateway charges what the writer holds after each chunk.
    running.heldChars();
    return out;
  });
  return [...written, ...running.end()];
}
