/**
 * Reports the estimated output tokens of running streams once per second. Tokens are estimated from the last chunk of
 * each second and scaled by the bytes of that second.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { BodyObserver } from "../../core/exchange.ts";
import { createSseParser } from "../../http/sse.ts";
import { readMembers } from "../../json/read-json.ts";
import { estimateTextTokens } from "../usage/estimate-tokens.ts";
import { findOutputText } from "../usage/stream-events.ts";

const EVENT = peerInput("llm-provider/stream-event");

const TICK_MS = 1_000;
const MAX_LOOK_BYTES = 64 * 1024;
const SAMPLE = peerInput("llm-provider/event-stream").upTo(MAX_LOOK_BYTES);

type Progressed = (tokens: number) => void;

export class StreamProgress {
  readonly #clock: Clock;
  readonly #streams = new Set<StreamMeter>();
  #ticking: Timer | undefined = undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  watch(progressed: Progressed): BodyObserver {
    const meter = new StreamMeter(progressed);
    this.#streams.add(meter);
    this.#ticking ??= this.#clock.every(TICK_MS, () => this.#tick());
    return {
      data: (chunk) => meter.data(chunk),
      end: () => {
        this.#streams.delete(meter);
        if (this.#streams.size === 0) this.close();
      },
    };
  }

  close(): void {
    this.#ticking?.cancel();
    this.#ticking = undefined;
  }

  #tick(): void {
    for (const meter of this.#streams) meter.report();
  }
}

class StreamMeter {
  readonly #progressed: Progressed;
  #bytes = 0;
  #last: Buffer | undefined = undefined;

  constructor(progressed: Progressed) {
    this.#progressed = progressed;
  }

  data(chunk: Buffer): void {
    this.#bytes += chunk.length;
    this.#last = chunk;
  }

  report(): void {
    const last = this.#last;
    if (last === undefined) return;
    const sampled = last.subarray(0, MAX_LOOK_BYTES);
    const tokens = Math.ceil((tokensIn(sampled) * this.#bytes) / sampled.length);
    this.#bytes = 0;
    this.#last = undefined;
    if (tokens > 0) this.#progressed(tokens);
  }
}

function tokensIn(chunk: Buffer): number {
  let tokens = 0;
  const parser = createSseParser(SAMPLE, ({ data }) => {
    const event = readMembers(EVENT, data);
    const text = event === undefined ? "" : findOutputText(event);
    if (text !== "") tokens += estimateTextTokens(Buffer.from(text));
  });
  try {
    parser.push(chunk);
  } catch {
    // The event exceeds the limit.
  }
  return tokens;
}
