/**
 * Implements external guards. A webhook receives the texts of a request or response as JSON and returns pass, mask,
 * or reject. The moderation services of OpenAI, Amazon Bedrock, Google Cloud, and Azure have APIs of their own. If a
 * guard fails or its verdict is invalid, `failureMode` decides whether the call is rejected.
 */
import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Fetch } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import { readJson } from "../../json/read-json.ts";
import { GuardRejection } from "./guarded-text.ts";

const WEBHOOK_VERDICT = peerInput("guard-service/webhook-verdict");

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
    return readJson(WEBHOOK_VERDICT.upToItems(texts + MAX_OTHER_TOKENS), text);
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
      input: WEBHOOK_VERDICT,
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

const VERDICT = peerInput("guard-service/verdict");

/** Azure rejects longer texts. */
const MAX_AZURE_CHARACTERS = 10_000;
const PIECE_OVERLAP = 500;
/** Bounds what one request costs. A longer text needs more calls. */
const MAX_SERVICE_CALLS = 64;
const TOO_LONG = { status: 413, message: "the text is too long for the guard of this route" };
/** With these statuses, a service rejects the text, which the client chooses, so `failureMode` does not apply. */
const REJECTED_TEXT: ReadonlySet<number> = new Set([400, 413, 422]);

interface ServiceCall {
  readonly url: string;
  readonly body: Buffer;
  readonly headers: HeaderList;
}

export interface GuardServiceSettings {
  readonly timeoutMs: number;
  readonly failureMode: "closed" | "open";
  readonly rejection: { readonly status: number; readonly message: string };
  /** Adds the credential to the headers of a call. */
  authorize(call: ServiceCall): void | Promise<void>;
}

interface ServiceEnv {
  readonly fetch: Fetch;
  failed(reason: string): void;
}

/** Sends a JSON document and resolves with the parsed response. */
type Post = (url: string, value: unknown) => Promise<unknown>;

/** Resolves with the texts to use instead, or with undefined to block the call. */
export type GuardService = (input: GuardInput, post: Post) => Promise<readonly string[] | undefined>;

export function createServiceGuard(
  service: GuardService,
  { timeoutMs, failureMode, rejection, authorize }: GuardServiceSettings,
  { fetch, failed }: ServiceEnv,
): GuardWebhook {
  const request: Post = async (url, value) => {
    const call = {
      url,
      body: Buffer.from(JSON.stringify(value)),
      headers: HeaderList.of({ "content-type": "application/json" }),
    };
    await authorize(call);
    const headers = Object.fromEntries(call.headers.entries());
    const { status, body } = await fetch({
      url,
      method: "POST",
      headers,
      body: call.body,
      timeoutMs,
      input: VERDICT,
    });
    if (REJECTED_TEXT.has(status)) {
      failed(`it rejected the text with ${status}`);
      throw new GuardRejection({ rejection: UNAVAILABLE });
    }
    if (status !== 200) throw new Error(`it answered ${status}`);
    return readJson(VERDICT, body);
  };
  return {
    async check(input) {
      if (input.texts.every((text) => text === "")) return input.texts;
      let texts: readonly string[] | undefined;
      let calls = 0;
      const post: Post = (url, value) => {
        calls += 1;
        if (calls > MAX_SERVICE_CALLS) throw new GuardRejection({ rejection: TOO_LONG });
        return request(url, value);
      };
      try {
        texts = await service(input, post);
      } catch (error) {
        if (error instanceof GuardRejection) throw error;
        failed(error instanceof z.ZodError ? "it gave no valid verdict" : (error as Error).message);
        if (failureMode === "open") return input.texts;
        throw new GuardRejection({ rejection: UNAVAILABLE });
      }
      if (texts === undefined) throw new GuardRejection({ rejection });
      return texts;
    },
  };
}

const moderation = z.object({ results: z.array(z.object({ flagged: z.boolean() })) });

/** Calls `POST /moderations` of the OpenAI API with each text and with all of them, in case a text is split. */
export function openAiModeration({ baseUrl, model }: { baseUrl: string; model: string }): GuardService {
  return async ({ texts }, post) => {
    const input = texts.length > 1 ? [...texts, texts.join("\n")] : texts;
    const { results } = moderation.parse(await post(`${baseUrl}/moderations`, { model, input }));
    if (results.length !== input.length) throw new Error(`it judged ${results.length} texts of ${input.length}`);
    return results.some(({ flagged }) => flagged) ? undefined : texts;
  };
}

const applied = z.object({
  action: z.enum(["NONE", "GUARDRAIL_INTERVENED"]),
  outputs: z.array(z.object({ text: z.string() })).default([]),
  assessments: z.unknown(),
});

interface BedrockGuardrail {
  readonly baseUrl: string;
  readonly guardrailIdentifier: string;
  readonly guardrailVersion: string;
}

/**
 * Calls `ApplyGuardrail` of Amazon Bedrock. If the guardrail only anonymizes, the texts are halved until each finding is
 * in a text by itself, because the outputs of a call do not name the text that they replace. The masked texts are then
 * checked together, because a finding can be split over several texts. Any other intervention blocks the call.
 */
export function bedrockGuardrails(config: BedrockGuardrail): GuardService {
  const id = encodeURIComponent(config.guardrailIdentifier);
  const url = `${config.baseUrl}/guardrail/${id}/version/${encodeURIComponent(config.guardrailVersion)}/apply`;
  return async ({ texts, direction }, post) => {
    const source = direction === "request" ? "INPUT" : "OUTPUT";
    const apply = async (list: readonly string[]): Promise<z.output<typeof applied>> =>
      applied.parse(await post(url, { source, content: list.map((text) => ({ text: { text } })) }));
    const masked = async (list: readonly string[]): Promise<readonly string[] | undefined> => {
      const nonEmpty = list.filter((text) => text !== "");
      if (nonEmpty.length === 0) return list;
      const { action, assessments, outputs } = await apply(nonEmpty);
      if (action === "NONE") return list;
      if (!isMasked(assessments)) return undefined;
      const [output] = outputs;
      if (list.length === 1) return output !== undefined && outputs.length === 1 ? [output.text] : undefined;
      const middle = Math.ceil(list.length / 2);
      const first = await masked(list.slice(0, middle));
      const second = first && (await masked(list.slice(middle)));
      return second && [...first, ...second];
    };
    const checked = await masked(texts);
    if (checked === undefined || checked === texts) return checked;
    const together = checked.filter((text) => text !== "");
    return together.length < 2 || (await apply(together)).action === "NONE" ? checked : undefined;
  };
}

/** Each finding of a guardrail has an action. Findings that are only anonymized do not block the text. */
function isMasked(assessments: unknown): boolean {
  const actions = [...JSON.stringify(assessments ?? null).matchAll(/"action":"([A-Z_]+)"/g)].map(
    ([, action]) => action,
  );
  return actions.includes("ANONYMIZED") && actions.every((action) => action === "ANONYMIZED" || action === "NONE");
}

const sanitized = z.object({
  sanitizationResult: z.object({
    filterMatchState: z.enum(["MATCH_FOUND", "NO_MATCH_FOUND"]),
    invocationResult: z.literal("SUCCESS"),
  }),
});

/** Calls `sanitizeUserPrompt` or `sanitizeModelResponse` of Google Model Armor with all texts. */
export function googleModelArmor({ baseUrl, template }: { baseUrl: string; template: string }): GuardService {
  return async ({ texts, direction }, post) => {
    const data = { text: texts.join("\n") };
    const [method, body] =
      direction === "request"
        ? (["sanitizeUserPrompt", { userPromptData: data }] as const)
        : (["sanitizeModelResponse", { modelResponseData: data }] as const);
    const { sanitizationResult } = sanitized.parse(await post(`${baseUrl}/v1/${template}:${method}`, body));
    return sanitizationResult.filterMatchState === "MATCH_FOUND" ? undefined : texts;
  };
}

const analyzed = z.object({
  categoriesAnalysis: z.array(z.object({ category: z.string(), severity: z.int() })),
  blocklistsMatch: z.array(z.unknown()).default([]),
});
const attack = z.object({ attackDetected: z.boolean() });
const shielded = z.object({ userPromptAnalysis: attack });
const shieldedDocument = z.object({ documentsAnalysis: z.tuple([attack]) });

interface AzureContentSafety {
  readonly endpoint: string;
  readonly apiVersion: string;
  /** Texts whose severity in a category is at least this number are blocked. */
  readonly severityThreshold: number | undefined;
  readonly blocklistNames: readonly string[];
  readonly detectsJailbreak: boolean;
}

/**
 * Calls `text:analyze` of Azure AI Content Safety and, for requests and the output of MCP servers, `text:shieldPrompt`.
 * A server's output is a document, because it can attack the model, but the user did not write it.
 */
export function azureContentSafety(config: AzureContentSafety): GuardService {
  const { severityThreshold: threshold, blocklistNames } = config;
  const url = (name: string): string =>
    `${config.endpoint}/contentsafety/text:${name}?api-version=${config.apiVersion}`;
  const isAttack = async (text: string, isDocument: boolean, post: Post): Promise<boolean> => {
    if (!isDocument) {
      const verdict = await post(url("shieldPrompt"), { userPrompt: text, documents: [] });
      return shielded.parse(verdict).userPromptAnalysis.attackDetected;
    }
    const verdict = await post(url("shieldPrompt"), { userPrompt: "", documents: [text] });
    return shieldedDocument.parse(verdict).documentsAnalysis[0].attackDetected;
  };
  return async ({ texts, direction, mcp }, post) => {
    const isDocument = direction === "response" && mcp !== undefined;
    for (const text of pieces(texts.join("\n"), MAX_AZURE_CHARACTERS)) {
      if (threshold !== undefined) {
        const { categoriesAnalysis, blocklistsMatch } = analyzed.parse(
          await post(url("analyze"), { text, blocklistNames }),
        );
        const category = categoriesAnalysis.find(({ severity }) => severity >= threshold);
        if (category !== undefined || blocklistsMatch.length > 0) return undefined;
      }
      if (config.detectsJailbreak && (direction === "request" || isDocument))
        if (await isAttack(text, isDocument, post)) return undefined;
    }
    return texts;
  };
}

/** The pieces overlap, so that a phrase at a border is in one of them. */
function pieces(text: string, length: number): string[] {
  const list: string[] = [];
  for (let at = 0; at < text.length; at += length - PIECE_OVERLAP)
    list.push(text.slice(at, at + length).toWellFormed());
  return list;
}
