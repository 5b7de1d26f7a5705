/**
 * Implements external guards. A webhook receives the texts of a request or response as JSON and returns pass, mask, or
 * reject. If the webhook fails or its verdict is invalid, `failureMode` decides whether the call is rejected.
 */

import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Fetch } from "../../http/fetch.ts";
import { readJson } from "../../json/read-json.ts";
import { GuardRejection } from "./guarded-text.ts";

const VERDICT = peerInput("guard-service/webhook-verdict");

export interface GuardWebhook {
  /** Resolves with the texts to use instead. Rejects with `GuardRejection` to block the call. */
  check(input: GuardInput): Promise<readonly string[]>;
}

export interface GuardInput {
  readonly direction: "request" | "response";
  readonly model: string | undefined;
  readonly texts: readonly string[];
  /** Present if the texts come from an MCP server instead of a model. */
  readonly mcp?: GuardedMcpMessage | undefined;
}

interface GuardedMcpMessage {
  readonly target: string;
  readonly method: string;
  /** The name that clients see, if the message belongs to a tool call. */
  readonly tool: string | undefined;
}

interface WebhookSettings {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly failureMode: "closed" | "open";
  readonly rejection: { readonly status: number; readonly message: string };
}

/** Masked texts can be as large as the originals. */
const MAX_OTHER_TOKENS = 1_000;
const UNAVAILABLE = { status: 503, message: "the guard of this route could not be asked" };

const verdict = z.discriminatedUnion("action", [
  z.object({ action: z.literal("pass") }),
  z.object({ action: z.literal("mask"), texts: z.array(z.string()) }),
  z.object({
    action: z.literal("reject"),
    status: z.int().min(400).max(599).optional(),
    message: z.string().min(1).max(4_000).optional(),
  }),
]);

/** A verdict contains one text per checked text and few other values, so a verdict with more tokens is rejected. */
function parseVerdict(text: string, texts: number): unknown {
  try {
    return readJson(VERDICT.upToItems(texts + MAX_OTHER_TOKENS), text);
  } catch (error) {
    throw new Error(`its verdict ${(error as Error).message}`);
  }
}

export function createGuardWebhook(
  settings: WebhookSettings,
  fetch: Fetch,
  failed: (reason: string) => void,
): GuardWebhook {
  async function requestVerdict(input: GuardInput): Promise<z.output<typeof verdict>> {
    const { status, body } = await fetch({
      url: settings.url,
      method: "POST",
      headers: { "content-type": "application/json", ...settings.headers },
      body: Buffer.from(JSON.stringify(input)),
      timeoutMs: settings.timeoutMs,
      input: VERDICT,
    });
    if (status !== 200) throw new Error(`it answered ${status}`);
    const result = verdict.parse(parseVerdict(body.toString("utf8"), input.texts.length));
    if (result.action === "mask" && result.texts.length !== input.texts.length)
      throw new Error(`it masked ${result.texts.length} texts of ${input.texts.length}`);
    return result;
  }

  return {
    async check(input) {
      if (input.texts.length === 0) return input.texts;
      let result: z.output<typeof verdict>;
      try {
        result = await requestVerdict(input);
      } catch (error) {
        failed(error instanceof z.ZodError ? "it gave no valid verdict" : (error as Error).message);
        if (settings.failureMode === "open") return input.texts;
        throw new GuardRejection({ rejection: UNAVAILABLE });
      }
      if (result.action === "pass") return input.texts;
      if (result.action === "mask") return result.texts;
      const { status, message } = settings.rejection;
      throw new GuardRejection({ rejection: { status: result.status ?? status, message: result.message ?? message } });
    },
  };
}

/** Runs the webhooks in order. Each webhook receives the output of the previous webhook. */
export async function checkAll(webhooks: readonly GuardWebhook[], input: GuardInput): Promise<readonly string[]> {
  let { texts } = input;
  for (const webhook of webhooks) texts = await webhook.check({ ...input, texts });
  return texts;
}
