/**
 * Response guards in shadow mode: the answer passes untouched and without delay, and the guards look at what passed.
 * JSON is looked at when it is whole, a stream event by event. What an enforced guard could not read is noted, because
 * it would have rejected it.
 */

import { InOrder } from "../../base/in-order.ts";
import { finish, inTurns, SLICED_BYTES, type Steps } from "../../base/turns.ts";
import type { BackendCall } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { HeaderList } from "../../http/headers.ts";
import { createSseParser } from "../../http/sse.ts";
import { parseMembersInSteps } from "../../json/json-steps.ts";
import { isEncoded } from "../encoding/decode-response.ts";
import { createGuardWatch, type GuardWatch } from "../guards/guarded-text.ts";
import { createStreamGuard } from "../guards/stream-guard.ts";
import { BodyTexts } from "../guards/text-places.ts";
import type { TextGuard } from "../request/llm-call.ts";
import { MAX_ANSWER_BYTES, MAX_EVENT_BYTES } from "./guarded-call.ts";
import { isEventStream } from "./native-answer.ts";
import { PassingCall } from "./passing-call.ts";

/** Reads the chunks of one answer. */
interface Reader {
  data(chunk: Buffer): void;
  /** `looked`: nothing is left to look at, which takes some turns if it is much. */
  end(looked: () => void): void;
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
  if (!isForeignStream) return new WatchedCall(call, guards, watch, () => exchange.isOver);
  watch.unread(guards, "this kind of stream cannot be read");
  return call;
}

class WatchedCall extends PassingCall {
  readonly #guards: readonly TextGuard[];
  readonly #watch: GuardWatch;
  readonly #isLeft: () => boolean;
  #reader: Reader | undefined;
  #hasEnded = false;

  constructor(call: BackendCall, guards: readonly TextGuard[], watch: GuardWatch, isLeft: () => boolean) {
    super(call);
    this.#isLeft = isLeft;
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
    // The answer's end waits: what is found must be there when the request is settled.
    const looked = (): void => {
      if (this.#hasEnded) return;
      this.#hasEnded = true;
      this.#reader = undefined;
      this.call.end(trailers);
    };
    this.#look((reader) => reader.end(looked));
    if (this.#reader === undefined) looked();
  }

  fail(error: unknown): void {
    this.#reader = undefined;
    this.call.fail(error);
  }

  /** Whatever goes wrong here is the guards' own affair. */
  #look<T>(action: (reader: Reader) => T): T | undefined {
    if (this.#reader === undefined) return undefined;
    try {
      return action(this.#reader);
    } catch {
      this.#unreadable();
      return undefined;
    }
  }

  #unreadable(): void {
    if (this.#reader === undefined) return;
    this.#reader = undefined;
    this.#watch.unread(this.#guards, "the answer cannot be read");
  }

  #streamReader(): Reader {
    const guard = createStreamGuard(this.#guards, (one) => this.#watch.found(one));
    let ended: (() => void) | undefined;
    const failed = (): void => {
      this.#unreadable();
      ended?.();
    };
    const order = new InOrder({
      busy: () => undefined,
      idle: () => undefined,
      failed,
      isOver: () => this.#reader === undefined || this.#isLeft(),
    });
    /** The stream is not held up while a large event is looked at: what comes meanwhile waits, up to a limit. */
    let waitingChars = 0;
    const parser = createSseParser((event) => {
      const size = event.data.length;
      waitingChars += size;
      if (waitingChars > MAX_ANSWER_BYTES) throw new Error("too large");
      order.run(guard.event(event), size <= SLICED_BYTES, () => {
        waitingChars -= size;
      });
    }, MAX_EVENT_BYTES);
    return {
      data: (chunk) => parser.push(chunk),
      end(looked) {
        ended = looked;
        order.run(guard.end(), true, () => undefined);
        order.afterwards(looked);
      },
    };
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
      end: (looked) => {
        const looking = this.#lookAtWhole(Buffer.concat(held));
        if (bytes > SLICED_BYTES)
          inTurns(looking, this.#isLeft)
            .catch(() => this.#unreadable())
            .finally(looked);
        else {
          finish(looking);
          looked();
        }
      },
    };
  }

  *#lookAtWhole(bytes: Buffer): Steps<void> {
    const body = yield* parseMembersInSteps(bytes);
    if (body === undefined) throw new Error("not JSON");
    yield* new BodyTexts(body, { direction: "response" }).guarded(this.#guards, (guard) => this.#watch.found(guard));
  }
}
