/**
 * Keeps the last events of one session, so that a client can resume after a dropped connection (`Last-Event-ID`). The
 * log is limited by number, bytes, and age.
 */

import type { MemoryAccount } from "../../base/memory-budget.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { tryReadJson } from "../../json/read-json.ts";

const LAST_EVENT_ID = peerInput("client/mcp-event-id");

const MAX_EVENTS = 256;
const MAX_BYTES = 1024 * 1024;
const KEPT_MS = 60_000;

export interface LoggedEvent {
  readonly stream: number;
  readonly number: number;
  /** The end of the event's id (`eventSuffix`). */
  readonly suffix: string;
  /** The pieces of the event. A large event is not joined, because that would block the event loop. */
  readonly pieces: readonly Buffer[];
  readonly atMs: number;
}

export function totalBytes(pieces: readonly Buffer[]): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}

export class EventLog {
  readonly #account: MemoryAccount;
  #events: LoggedEvent[] = [];
  #bytes = 0;

  constructor(account: MemoryAccount) {
    this.#account = account;
  }

  get size(): number {
    return this.#events.length;
  }

  /**
   * If the client's memory budget is exhausted, older events are dropped. If that is not enough, this event is not
   * logged.
   */
  append(event: LoggedEvent): void {
    const length = totalBytes(event.pieces);
    // A single event may exceed `MAX_BYTES`, because it may be a response.
    while (this.#events.length > 0 && (this.#events.length >= MAX_EVENTS || this.#bytes + length > MAX_BYTES)) {
      this.#drop();
    }
    while (!this.#account.tryGrow(length)) {
      if (this.#events.length === 0) return;
      this.#drop();
    }
    this.#events.push(event);
    this.#bytes += length;
  }

  #drop(): void {
    const length = totalBytes((this.#events.shift() as LoggedEvent).pieces);
    this.#bytes -= length;
    this.#account.shrink(length);
  }

  /** Returns the events oldest first. */
  after(stream: number, suffix: string, number: number): LoggedEvent[] {
    return this.#events.filter((event) => event.stream === stream && event.number > number && event.suffix === suffix);
  }

  expire(nowMs: number): void {
    const first = this.#events[0];
    if (first === undefined || nowMs - first.atMs < KEPT_MS) return;
    this.#events = this.#events.filter((event) => nowMs - event.atMs < KEPT_MS);
    const bytes = this.#events.reduce((sum, event) => sum + totalBytes(event.pieces), 0);
    this.#account.shrink(this.#bytes - bytes);
    this.#bytes = bytes;
  }
}

const EVENT_ID = /^(\d{1,15})-(\d{1,15})(e?)(?:-(?:n(-?\d{1,15})|s([\w-]{1,160})))?$/;
const WHOLE_NUMBER = /^-?\d{1,15}$/;
/** Longer request ids are omitted from event ids. */
const MAX_ID_CHARS = 100;

export interface EventPlace {
  readonly stream: number;
  readonly number: number;
  /** Marks the last event of a stream, after which there is nothing to resume. */
  readonly isLast?: true;
  /**
   * The id of the stream's only request as JSON, so that a process without the stream can send an error for it.
   */
  readonly answers?: string;
}

/** Returns an empty string for ids that event ids cannot contain. */
export function eventSuffix(answers: string | undefined): string {
  if (answers === undefined || answers.length > MAX_ID_CHARS) return "";
  if (WHOLE_NUMBER.test(answers)) return `-n${answers}`;
  if (!answers.startsWith('"')) return "";
  // The same id may have different escapes.
  const normalized = answers.includes("\\") ? quoted(answers) : answers;
  return normalized === undefined ? "" : `-s${Buffer.from(normalized).toString("base64url")}`;
}

export function eventId(stream: number, number: number, suffix = "", isLast = false): string {
  return `${stream}-${number}${isLast ? "e" : ""}${suffix}`;
}

export function parseEventId(text: string): EventPlace | undefined {
  const match = EVENT_ID.exec(text);
  if (match === null) return undefined;
  const answers = match[4] ?? (match[5] && quoted(Buffer.from(match[5], "base64url").toString()));
  return {
    stream: Number(match[1]),
    number: Number(match[2]),
    ...(match[3] ? { isLast: true } : {}),
    ...(answers ? { answers } : {}),
  };
}

function quoted(text: string): string | undefined {
  const value = tryReadJson(LAST_EVENT_ID, text);
  return typeof value === "string" ? JSON.stringify(value) : undefined;
}
