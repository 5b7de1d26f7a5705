/**
 * Passes one body through an external processor in the mode FULL_DUPLEX_STREAMED: chunks are sent without waiting for
 * responses, and the processor sends the new body when it wants. Chunks are held until the first response, because a
 * processor may also respond to each chunk without changing it, and because an unprocessed body can still be sent if
 * the processor fails.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import { type MemoryAccount, MemoryExhausted } from "../../base/memory-budget.ts";
import { BodyTooLarge } from "../../http/body.ts";
import type { ProcessorStream, StepReceiver } from "./client.ts";
import type { ProcessingResponse } from "./protocol.ts";

/** gRPC servers accept messages of 4 MiB by default. */
const CHUNK_BYTES = 64 * 1024;

interface DuplexOptions {
  readonly clock: Clock;
  /** Limits the wait for each response after the end of the body was sent. */
  readonly timeoutMs: number;
  /** The largest part of the body that waits for the processor. */
  readonly maxBytes: number;
  /** Charges the bytes that wait for the processor. */
  readonly memory: MemoryAccount | undefined;
  output(bytes: Buffer): void;
  /** Called after the end of the body has been sent, or earlier if the processor does not read the rest. */
  endSent(): void;
}

interface Chunk {
  readonly bytes: Buffer;
  readonly isLast: boolean;
}

export class DuplexBody implements StepReceiver {
  readonly #stream: ProcessorStream;
  readonly #step: "requestBody" | "responseBody";
  readonly #options: DuplexOptions;
  readonly #held: Chunk[] = [];
  readonly #unsent: Chunk[] = [];
  #heldBytes = 0;
  #unanswered = 0;
  /** True if the processor sends a new body instead of a response for each chunk. */
  #isReplaced = false;
  #isComplete = false;
  #timer: Timer | undefined;
  #ended: Error | null | undefined;
  #immediate: ProcessingResponse | undefined;
  #waiting: (() => void) | undefined;

  constructor(stream: ProcessorStream, step: "requestBody" | "responseBody", options: DuplexOptions) {
    this.#stream = stream;
    this.#step = step;
    this.#options = options;
    stream.receive(step, this);
  }

  /** True if the processor has sent the whole new body. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** The processor's response to the whole request, if it sent one. */
  get immediate(): ProcessingResponse | undefined {
    return this.#immediate;
  }

  /** Returns the reason if the stream ended before the body was complete. */
  get failure(): Error | null | undefined {
    return this.#isComplete ? undefined : this.#ended;
  }

  /** Takes a part of the body, which `flush` sends. Throws if too much of the body waits for the processor. */
  hold(bytes: Buffer, isLast: boolean): void {
    if (!this.#isReplaced) this.#charge(bytes.length);
    for (let start = 0; start === 0 || start < bytes.length; start += CHUNK_BYTES) {
      const end = start + CHUNK_BYTES;
      const chunk = { bytes: bytes.subarray(start, end), isLast: isLast && end >= bytes.length };
      this.#unsent.push(chunk);
      if (!this.#isReplaced) this.#held.push(chunk);
    }
  }

  async flush(): Promise<void> {
    for (let chunk = this.#unsent.shift(); chunk !== undefined && !this.#isOver; chunk = this.#unsent.shift()) {
      const { bytes, isLast } = chunk;
      this.#unanswered += 1;
      await this.#stream.write({ [this.#step]: { body: bytes, endOfStream: isLast } }, this.#options.timeoutMs);
      if (!isLast) continue;
      this.#options.endSent();
      if (!this.#isOver) this.#arm();
    }
  }

  /** Resolves when the body is complete, the stream has ended, or the processor has responded to the request. */
  async finished(): Promise<void> {
    if (this.#isOver) return;
    await new Promise<void>((resolve) => {
      this.#waiting = resolve;
    });
  }

  /**
   * Returns the chunks that the processor did not respond to, so that they can be sent unchanged. Returns undefined if
   * a part of a new body was already passed on.
   */
  release(): Buffer | undefined {
    if (this.#isReplaced) return undefined;
    const bytes = Buffer.concat(this.#held.map((chunk) => chunk.bytes));
    this.#drop();
    return bytes;
  }

  response(response: ProcessingResponse): void {
    if (response.immediateResponse !== undefined) {
      this.#immediate = response;
      this.#settle();
      return;
    }
    const mutation = response[this.#step]?.response?.bodyMutation ?? null;
    if (this.#isComplete) this.#stream.fail(new Error("a body after its end"));
    else if (mutation?.streamedResponse !== undefined) {
      const { body, endOfStream } = mutation.streamedResponse;
      this.#isReplaced = true;
      this.#drop();
      this.#pass(Buffer.from(body), endOfStream);
    } else {
      const chunk = this.#isReplaced || this.#unanswered === 0 ? undefined : this.#held.shift();
      if (chunk === undefined) {
        this.#stream.fail(new Error("a body response without a chunk"));
        return;
      }
      this.#unanswered -= 1;
      this.#shrink(chunk.bytes.length);
      const changed = mutation?.clearBody === true ? EMPTY : mutation?.body;
      this.#pass(changed === undefined ? chunk.bytes : Buffer.from(changed), chunk.isLast);
    }
  }

  ended(error: Error | null): void {
    this.#ended = error;
    this.#settle();
  }

  get #isOver(): boolean {
    return this.#isComplete || this.#ended !== undefined || this.#immediate !== undefined;
  }

  #pass(bytes: Buffer, isLast: boolean): void {
    if (bytes.length > 0) this.#options.output(bytes);
    // The stream has ended if the output does not accept the bytes.
    if (this.#ended !== undefined) return;
    if (isLast) {
      this.#isComplete = true;
      this.#settle();
    } else if (this.#timer !== undefined) this.#arm();
  }

  #charge(bytes: number): void {
    if (this.#heldBytes + bytes > this.#options.maxBytes) throw new BodyTooLarge(this.#options.maxBytes);
    if (this.#options.memory?.tryGrow(bytes) === false)
      throw new MemoryExhausted("a body that waits for the external processor does not fit");
    this.#heldBytes += bytes;
  }

  #drop(): void {
    this.#held.length = 0;
    this.#shrink(this.#heldBytes);
  }

  #shrink(bytes: number): void {
    this.#heldBytes -= bytes;
    this.#options.memory?.shrink(bytes);
  }

  #arm(): void {
    this.#timer?.cancel();
    const { clock, timeoutMs } = this.#options;
    this.#timer = clock.after(timeoutMs, () => this.#stream.fail(new Error(`no response within ${timeoutMs} ms`)));
  }

  #settle(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#options.endSent();
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.();
  }
}

const EMPTY = Buffer.alloc(0);
