/**
 * An answer that passes as it came, byte for byte: errors, unknown members, frames of any kind. It is watched for
 * its usage, and only a usage chunk that the client did not ask for is taken out. If it breaks off in the middle of
 * an event stream, the client is told so in its own dialect.
 */
import { type BackendCall, passText } from "../../core/backend.ts";
import type { HeaderList } from "../../http/headers.ts";
import { encodeSseEvent } from "../../http/sse.ts";
import type { Format } from "../request/dialect.ts";
import { errorEvent } from "../request/llm-errors.ts";
import { isPlainEvents, usageEventAt } from "../usage/event-content.ts";
import { createUsageHider, type UsageHider } from "../usage/hide-usage.ts";
import { createUsageTap, type UsageTap } from "../usage/response-usage.ts";
import { readHeaderUsage } from "../usage/usage.ts";
import type { CallSettlement } from "./settlement.ts";

/** One answer of a provider on its way to the client. */
export interface Answer {
  head(status: number, headers: HeaderList): void;
  data(chunk: Buffer): boolean;
  /** Instead of `data`, for pieces that came as text, one character for each byte; `framed`: as chunks. */
  text?(text: string, framed: string): boolean;
  end(trailers: readonly string[]): void;
  /** It broke off. */
  fail(error: unknown): void;
  /** The client left. */
  abort(): void;
}

export class NativeAnswer implements Answer {
  readonly #call: BackendCall;
  readonly #format: Format;
  readonly #settlement: CallSettlement;
  readonly #hidesUsage: boolean;
  #tap: UsageTap | undefined;
  #hider: UsageHider | undefined;
  #isEventStream = false;
  #status = 0;

  constructor(call: BackendCall, format: Format, settlement: CallSettlement, hidesUsage: boolean) {
    this.#call = call;
    this.#format = format;
    this.#settlement = settlement;
    this.#hidesUsage = hidesUsage;
  }

  head(status: number, headers: HeaderList): void {
    this.#status = status;
    const contentType = headers.get("content-type");
    const encoding = headers.get("content-encoding");
    this.#isEventStream = isEventStream(contentType) && encoding === undefined;
    const beside = this.#format === "invoke" ? readHeaderUsage(headers) : undefined;
    if (status < 400)
      this.#tap = createUsageTap(contentType, encoding, (report) =>
        // What stands beside the answer counts all of it.
        this.#settlement.counted(
          report.usage === undefined && beside ? { ...report, usage: beside, uncountedTokens: 0 } : report,
        ),
      );
    if (this.#hidesUsage && this.#isEventStream) {
      this.#hider = createUsageHider();
      headers.delete("content-length");
    }
    this.#call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    this.#settlement.firstByte();
    if (!this.#hider) {
      const goOn = this.#call.data(chunk);
      // Counted after it was sent: the client never waits for our reading.
      this.#tap?.data(chunk);
      return goOn;
    }
    const usageAt = usageEventAt(chunk);
    const passed = this.#hider.pass(chunk, usageAt);
    const goOn = passed === undefined ? true : this.#call.data(passed);
    this.#tap?.data(chunk, usageAt);
    return goOn;
  }

  /** Events that say nothing of usage, which is nearly all of them, pass without a look at their bytes. */
  text(text: string, framed: string): boolean {
    const isPlain = isPlainEvents(text) && this.#hider?.isInEvent() !== true;
    if (!isPlain || this.#tap?.plain === undefined) return this.data(Buffer.from(text, "latin1"));
    this.#settlement.firstByte();
    const goOn = passText(this.#call, text, framed);
    this.#tap.plain(text);
    return goOn;
  }

  end(trailers: readonly string[]): void {
    const rest = this.#hider?.flush();
    if (rest) this.#call.data(rest);
    this.#settle(true);
    this.#call.end(trailers);
  }

  fail(error: unknown): void {
    this.#settle(false);
    if (this.#isEventStream) failAfter(this.#call, brokenStreamEvent(this.#format), error);
    else this.#call.fail(error);
  }

  abort(): void {
    this.#settle(false);
  }

  #settle(complete: boolean): void {
    if (this.#tap === undefined) this.#settlement.nothing(String(this.#status));
    else if (complete) this.#tap.end();
    else this.#tap.abort();
  }
}

export function isEventStream(contentType: string | undefined): boolean {
  return contentType?.startsWith("text/event-stream") === true;
}

/** A broken connection would take the last words with it if it came in the same turn. */
export function failAfter(call: BackendCall, lastWords: Buffer, error: unknown): void {
  call.data(lastWords);
  setImmediate(() => call.fail(error));
}

/** The blank line in front ends whatever event was cut. */
export function brokenStreamEvent(format: Format): Buffer {
  const error = { status: 502, message: "the provider's stream ended early", code: "upstream_error" };
  return Buffer.from(`\n\n${encodeSseEvent(errorEvent(format, error))}`);
}
