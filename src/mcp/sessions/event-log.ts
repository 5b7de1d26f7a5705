/**
 * The last events of one session, so that a client whose connection dropped can ask for what it missed
 * (`Last-Event-ID`). Bounded in number, bytes and age: it is a net under dropped connections, not a mailbox.
 */

const MAX_EVENTS = 256;
const MAX_BYTES = 1024 * 1024;
/** A client that lost its connection is back long before this. */
const KEPT_MS = 60_000;

export interface LoggedEvent {
  readonly stream: number;
  readonly number: number;
  readonly bytes: Buffer;
  readonly atMs: number;
}

export class EventLog {
  #events: LoggedEvent[] = [];
  #bytes = 0;

  get size(): number {
    return this.#events.length;
  }

  append(event: LoggedEvent): void {
    this.#events.push(event);
    this.#bytes += event.bytes.length;
    // The newest stays, however large: it may be the one answer that matters.
    while (this.#events.length > 1 && (this.#events.length > MAX_EVENTS || this.#bytes > MAX_BYTES)) {
      this.#bytes -= (this.#events.shift() as LoggedEvent).bytes.length;
    }
  }

  /** The events of a stream after that number, oldest first. */
  after(stream: number, number: number): LoggedEvent[] {
    return this.#events.filter((event) => event.stream === stream && event.number > number);
  }

  expire(nowMs: number): void {
    const first = this.#events[0];
    if (first === undefined || nowMs - first.atMs < KEPT_MS) return;
    this.#events = this.#events.filter((event) => nowMs - event.atMs < KEPT_MS);
    this.#bytes = this.#events.reduce((sum, event) => sum + event.bytes.length, 0);
  }
}

const EVENT_ID = /^(\d{1,15})-(\d{1,15})$/;

export function eventId(stream: number, number: number): string {
  return `${stream}-${number}`;
}

export function parseEventId(text: string): { stream: number; number: number } | undefined {
  const match = EVENT_ID.exec(text);
  return match ? { stream: Number(match[1]), number: Number(match[2]) } : undefined;
}
