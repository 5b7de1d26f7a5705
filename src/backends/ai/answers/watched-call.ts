/**
 * Response guards in shadow mode: the answer passes untouched and without delay, and the guards look at what passed.
 * JSON is looked at when it is whole, a stream event by event. What an enforced guard could not read is noted, because
 * it would have rejected it.
 */

import type { BackendCall } from "../../../core/backend.ts";
import type { Exchange } from "../../../core/exchange.ts";
import type { HeaderList } from "../../../lib/http/headers.ts";
import { createSseParser } from "../../../lib/http/sse.ts";
import type { TextGuard } from "../../../llm/dialects/llm-call.ts";
import { createGuardWatch, type GuardWatch } from "../../../llm/guards/guard-watch.ts";
import { mapAnswerTexts } from "../../../llm/guards/map-texts.ts";
import { watchText } from "../../../llm/guards/prompt-rules.ts";
import { createStreamGuard } from "../../../llm/guards/stream-guard.ts";
import { isEncoded } from "../../../llm/wire/decode-answer.ts";
import { parseMembers } from "../../../llm/wire/json.ts";
import { MAX_ANSWER_BYTES, MAX_EVENT_BYTES } from "./guarded-call.ts";
import { isEventStream } from "./native-answer.ts";
import { PassingCall } from "./passing-call.ts";

/** Reads the chunks of one answer. */
interface Reader {
  data(chunk: Buffer): void;
  end(): void;
}

/** Guards in shadow mode stand nearest to the client: they see what the others let through. */
export function watchedCall(
  call: BackendCall,
  exchange: Exchange,
  guards: readonly TextGuard[] | undefined,
  isForeignStream: boolean,
): BackendCall {
  if (guards === undefined) return call;
  const watch = createGuardWatch(exchange, "response");
  if (!isForeignStream) return new WatchedCall(call, guards, watch);
  watch.unread(guards, "this kind of stream cannot be read");
  return call;
}

class WatchedCall extends PassingCall {
  readonly #guards: readonly TextGuard[];
  readonly #watch: GuardWatch;
  #reader: Reader | undefined;

  constructor(call: BackendCall, guards: readonly TextGuard[], watch: GuardWatch) {
    super(call);
    this.#guards = guards;
    this.#watch = watch;
  }

  head(status: number, headers: HeaderList): void {
    if (status < 400) {
      const isStream = isEventStream(headers.get("content-type")) && !isEncoded(headers.get("content-encoding"));
      this.#reader = isStream ? this.#streamReader() : this.#wholeReader();
    }
    this.call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    this.#look((reader) => reader.data(chunk));
    return this.call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    this.#look((reader) => reader.end());
    this.#reader = undefined;
    this.call.end(trailers);
  }

  fail(error: unknown): void {
    this.#reader = undefined;
    this.call.fail(error);
  }

  /** Whatever goes wrong here is the guards' own affair. */
  #look(action: (reader: Reader) => void): void {
    if (this.#reader === undefined) return;
    try {
      action(this.#reader);
    } catch {
      this.#reader = undefined;
      this.#watch.unread(this.#guards, "the answer cannot be read");
    }
  }

  #text(text: string): string {
    return watchText(text, this.#guards, (guard) => this.#watch.found(guard));
  }

  #streamReader(): Reader {
    const guard = createStreamGuard(this.#guards, (text) => this.#text(text));
    const parser = createSseParser((event) => void guard.event(event), MAX_EVENT_BYTES);
    return { data: (chunk) => parser.push(chunk), end: () => void guard.end() };
  }

  #wholeReader(): Reader {
    const held: Buffer[] = [];
    let bytes = 0;
    return {
      data(chunk) {
        bytes += chunk.length;
        if (bytes > MAX_ANSWER_BYTES) throw new Error("too large");
        held.push(chunk);
      },
      end: () => {
        const body = parseMembers(Buffer.concat(held).toString("utf8"));
        if (body === undefined) throw new Error("not JSON");
        mapAnswerTexts(body, (text) => this.#text(text));
      },
    };
  }
}
