/**
 * The demo provider as an upstream: the same interface as a connection pool, so that everything that real providers
 * go through (failover, usage, translation, back-pressure) is tried with it.
 */

import type { Clock } from "../../base/clock.ts";
import { HeaderList } from "../../http/headers.ts";
import { type Carrier, HttpAttempt } from "../../http/http-attempt.ts";
import type { HttpCall, OutgoingRequest, ResponseHandler } from "../../http/http-client.ts";
import { encodeSseEvent } from "../../http/sse.ts";
import { type Members, parseMembers } from "../../json/json.ts";
import type { OutEvent } from "../canonical/translation.ts";
import {
  type DemoCall,
  demoChat,
  demoChatStream,
  demoEmbeddings,
  demoInputTokens,
  demoModels,
  demoResponse,
  demoResponseStream,
} from "../providers/demo.ts";
import { openAiCompatible } from "../providers/openai.ts";
import { errorBody } from "../request/llm-errors.ts";
import { CHAT_HABITS, type Provider } from "../request/provider.ts";

/** What a call is sent through: a pool, or the demo. */
export interface Upstream {
  send(request: OutgoingRequest, handler: ResponseHandler): HttpCall;
}

export function demoProvider(): Provider {
  return openAiCompatible("demo", "http://demo.internal/v1", {
    streamUsage: true,
    responses: true,
    chat: CHAT_HABITS,
  });
}

export function createDemoUpstream(clock: Clock, delayMs: number): Upstream {
  return {
    send(request, handler) {
      const run = new DemoRun(clock, delayMs);
      const attempt = new HttpAttempt(run, handler);
      // Like a network, it never answers before the caller holds the call.
      queueMicrotask(() => run.start(attempt, request));
      return attempt;
    },
  };
}

const TOO_ODD = "the demo provider wants a JSON object of at most 1 MiB";
const POST_IT = "this is the demo LLM: POST a JSON body to /v1/chat/completions";

class DemoRun implements Carrier {
  readonly #clock: Clock;
  readonly #delayMs: number;
  #events: readonly OutEvent[] = [];
  #next = 0;
  #paused = false;

  constructor(clock: Clock, delayMs: number) {
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  /** What is under way looks at the attempt before each step. */
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
    const body = Buffer.isBuffer(request.body) ? parseMembers(request.body.toString("utf8")) : undefined;
    if (path.endsWith("/models")) this.#json(attempt, 200, demoModels());
    else if (body === undefined)
      this.#json(
        attempt,
        400,
        errorBody("chat", { status: 400, message: request.method === "POST" ? TOO_ODD : POST_IT }),
      );
    else
      this.#answer(attempt, path, {
        body,
        inputTokens: demoInputTokens(body),
        createdSeconds: Math.floor(this.#clock.now() / 1000),
      });
  }

  #answer(attempt: HttpAttempt, path: string, call: DemoCall): void {
    const isResponses = path.endsWith("/responses");
    if (path.endsWith("/embeddings")) this.#json(attempt, 200, demoEmbeddings(call));
    else if (call.body.stream === true)
      this.#stream(attempt, isResponses ? demoResponseStream(call) : demoChatStream(call));
    else this.#json(attempt, 200, isResponses ? demoResponse(call) : demoChat(call));
  }

  #json(attempt: HttpAttempt, status: number, value: Members): void {
    const bytes = Buffer.from(JSON.stringify(value));
    attempt.head(status, HeaderList.of({ "content-type": "application/json", "content-length": String(bytes.length) }));
    attempt.data(bytes);
    attempt.end([]);
  }

  #stream(attempt: HttpAttempt, events: readonly OutEvent[]): void {
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
      const data = next.data === "[DONE]" ? next.data : JSON.stringify(next.data);
      this.#paused = !attempt.data(
        Buffer.from(encodeSseEvent({ ...(next.event === undefined ? {} : { event: next.event }), data })),
      );
      if (this.#delayMs > 0 && !this.#paused) {
        this.#paused = true;
        this.#clock.after(this.#delayMs, () => this.proceed(attempt));
      }
    }
  }
}
