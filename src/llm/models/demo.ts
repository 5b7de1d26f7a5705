/**
 * Implements the demo provider, which needs no network or key.
 */
import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { HeaderList } from "../../http/headers.ts";
import { type Carrier, HttpAttempt } from "../../http/http-attempt.ts";
import type { HttpCall, HttpResponseReceiver, OutgoingRequest } from "../../http/http-client.ts";
import { encodeSseEvent } from "../../http/sse.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { readMembers } from "../../json/read-json.ts";
import type { OutEvent } from "../dialects/translation.ts";
import { errorBody } from "../request/llm-errors.ts";
import { estimateTextTokens } from "../usage/estimate-tokens.ts";
import { openAiCompatible, type Provider, STANDARD_CHAT } from "./providers.ts";

const REQUEST = peerInput("client/llm-request");

const DEMO_MODEL = "demo";
const DIMENSIONS = 8;

interface DemoCall {
  readonly body: Members;
  readonly inputTokens: number;
  readonly createdSeconds: number;
}

function demoChat(call: DemoCall): Members {
  const { id, model, words } = createReply(call, lastUserText(call.body.messages));
  return {
    id,
    object: "chat.completion",
    created: call.createdSeconds,
    model,
    choices: [{ index: 0, message: { role: "assistant", content: words.join("") }, finish_reason: "stop" }],
    usage: chatUsage(call, words),
  };
}

function demoChatStream(call: DemoCall): OutEvent["data"][] {
  const { id, model, words } = createReply(call, lastUserText(call.body.messages));
  const head = { id, object: "chat.completion.chunk", created: call.createdSeconds, model };
  const chunk = (delta: Members, finish: string | null): Members => ({
    ...head,
    choices: [{ index: 0, delta, finish_reason: finish }],
  });
  const options = call.body.stream_options;
  const wantsUsage = isMembers(options) && options.include_usage === true;
  return [
    chunk({ role: "assistant", content: "" }, null),
    ...words.map((content) => chunk({ content }, null)),
    chunk({}, "stop"),
    ...(wantsUsage ? [{ ...head, choices: [], usage: chatUsage(call, words) }] : []),
    "[DONE]",
  ];
}

function demoEmbeddings(call: DemoCall): Members {
  const { input } = call.body;
  const texts = Array.isArray(input) ? input : [input];
  const data = texts.map((text, index) => ({ object: "embedding", index, embedding: embed(JSON.stringify(text)) }));
  return {
    object: "list",
    data,
    model: requestedModel(call.body),
    usage: { prompt_tokens: call.inputTokens, total_tokens: call.inputTokens },
  };
}

function demoModels(): Members {
  return { object: "list", data: [{ id: DEMO_MODEL, object: "model", created: 0, owned_by: "demo" }] };
}

function createReply(call: DemoCall, question: string): { id: string; model: string; words: string[] } {
  const id = createHash("sha256").update(JSON.stringify(call.body)).digest("hex").slice(0, 24);
  const said = question === "" ? "nothing" : `"${question.length > 200 ? `${question.slice(0, 200)}…` : question}"`;
  const text = `This is the demo provider. You said ${said}. Configure a real provider to get a real answer.`;
  return { id: `demo-${id}`, model: requestedModel(call.body), words: text.match(/\s*\S+/g) ?? [] };
}

function chatUsage(call: DemoCall, words: readonly string[]): Members {
  return {
    prompt_tokens: call.inputTokens,
    completion_tokens: words.length,
    total_tokens: call.inputTokens + words.length,
    prompt_tokens_details: { cached_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: 0 },
  };
}

function requestedModel(body: Members): string {
  return typeof body.model === "string" ? body.model : DEMO_MODEL;
}

function lastUserText(messages: unknown): string {
  if (typeof messages === "string") return messages;
  if (!Array.isArray(messages)) return "";
  const last = messages.findLast((message) => isMembers(message) && message.role === "user") as Members | undefined;
  const content = last?.content;
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.flatMap((part) => (isMembers(part) && typeof part.text === "string" ? [part.text] : [])).join(" ");
}

function embed(text: string): number[] {
  const bytes = createHash("sha256").update(text).digest();
  const raw = Array.from({ length: DIMENSIONS }, (_, i) => (bytes[i] as number) - 127.5);
  const length = Math.hypot(...raw);
  return raw.map((value) => Number((value / length).toFixed(6)));
}

function demoInputTokens(body: Members): number {
  const prompt = body.messages ?? body.input ?? "";
  return estimateTextTokens(Buffer.from(typeof prompt === "string" ? prompt : lastUserText(prompt)));
}

export interface Upstream {
  send(request: OutgoingRequest, handler: HttpResponseReceiver): HttpCall;
}

export function demoProvider(): Provider {
  return openAiCompatible("demo", "http://demo.internal/v1", {
    streamUsage: true,
    responses: false,
    chat: STANDARD_CHAT,
  });
}

export function createDemoUpstream(clock: Clock, delayMs: number): Upstream {
  return {
    send(request, handler) {
      const run = new DemoRun(clock, delayMs);
      const attempt = new HttpAttempt(run, handler);
      // Callbacks must not run before `send` returns, as with a network connection.
      queueMicrotask(() => run.start(attempt, request));
      return attempt;
    },
  };
}

const INVALID_BODY = "the demo provider wants a JSON object of at most 1 MiB";
const USE_POST = "this is the demo LLM: POST a JSON body to /v1/chat/completions";

class DemoRun implements Carrier {
  readonly #clock: Clock;
  readonly #delayMs: number;
  #events: readonly OutEvent["data"][] = [];
  #next = 0;
  #paused = false;

  constructor(clock: Clock, delayMs: number) {
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  stop(): void {
    this.#events = [];
  }

  proceed(attempt: HttpAttempt): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#sendEvents(attempt);
  }

  start(attempt: HttpAttempt, request: OutgoingRequest): void {
    if (attempt.isOver) return;
    const { path } = request;
    const body = Buffer.isBuffer(request.body) ? readMembers(REQUEST, request.body) : undefined;
    if (path.endsWith("/models")) this.#json(attempt, 200, demoModels());
    else if (body === undefined)
      this.#json(
        attempt,
        400,
        errorBody("chat", { status: 400, message: request.method === "POST" ? INVALID_BODY : USE_POST }),
      );
    else
      this.#respond(attempt, path, {
        body,
        inputTokens: demoInputTokens(body),
        createdSeconds: Math.floor(this.#clock.now() / 1000),
      });
  }

  #respond(attempt: HttpAttempt, path: string, call: DemoCall): void {
    if (path.endsWith("/embeddings")) this.#json(attempt, 200, demoEmbeddings(call));
    else if (call.body.stream === true) this.#stream(attempt, demoChatStream(call));
    else this.#json(attempt, 200, demoChat(call));
  }

  #json(attempt: HttpAttempt, status: number, value: Members): void {
    const bytes = Buffer.from(JSON.stringify(value));
    attempt.head(status, HeaderList.of({ "content-type": "application/json", "content-length": String(bytes.length) }));
    attempt.data(bytes);
    attempt.end([]);
  }

  #stream(attempt: HttpAttempt, events: readonly OutEvent["data"][]): void {
    this.#events = events;
    attempt.head(
      200,
      HeaderList.of({ "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" }),
    );
    this.#sendEvents(attempt);
  }

  #sendEvents(attempt: HttpAttempt): void {
    while (!attempt.isOver && !this.#paused) {
      const next = this.#events[this.#next];
      if (next === undefined) {
        attempt.end([]);
        return;
      }
      this.#next += 1;
      const data = next === "[DONE]" ? next : JSON.stringify(next);
      this.#paused = !attempt.data(Buffer.from(encodeSseEvent({ data })));
      if (this.#delayMs > 0 && !this.#paused) {
        this.#paused = true;
        this.#clock.after(this.#delayMs, () => this.proceed(attempt));
      }
    }
  }
}
