/**
 * Parses and encodes server-sent events. The parser accepts bytes in arbitrary chunks and holds at most one event, up
 * to a limit. The encoder ensures that no value can add lines or end the event.
 */
import { ExpectedError } from "../base/errors.ts";
import type { PeerInput } from "../base/peer-inputs.ts";
import { TextPieces } from "../base/text-pieces.ts";

export interface SseEvent {
  readonly event: string;
  /** The lines of `data:` fields are joined by LF. */
  readonly data: string;
  readonly id: string | undefined;
  readonly retry: number | undefined;
}

export interface SseParser {
  /** Calls back for each event that the chunk completes. Throws SseTooLarge if an event exceeds the limit. */
  push(chunk: Buffer): void;
  readonly heldBytes: number;
}

export class SseTooLarge extends ExpectedError {
  constructor(maxBytes: number) {
    super(`a server-sent event is larger than ${maxBytes} bytes`);
    this.name = "SseTooLarge";
  }
}

const LF = 10;
const CR = 13;
const COLON = 58;
const SPACE = 32;
const JOINED_LINES = 4_096;

export function createSseParser(input: PeerInput<"event stream">, onEvent: (event: SseEvent) => void): SseParser {
  const { maxBytes } = input;
  let partial: TextPieces | undefined;
  let heldBytes = 0;
  let lastWasCr = false;
  let atStart = true;
  let event = "";
  let data: string[] = [];
  /** Joins data lines incrementally, because joining millions at the end would block the event loop. */
  let joined: string[] = [];
  let id: string | undefined;
  let retry: number | undefined;

  function line(bytes: Buffer): void {
    if (bytes.length === 0) {
      dispatch();
      return;
    }
    const colon = bytes.indexOf(COLON);
    if (colon === 0) return;
    const name = bytes.toString("latin1", 0, colon < 0 ? bytes.length : colon);
    const from = colon < 0 ? bytes.length : bytes[colon + 1] === SPACE ? colon + 2 : colon + 1;
    field(name, bytes.toString("utf8", from));
  }

  function longLine(text: string): void {
    const colon = text.indexOf(":");
    if (colon === 0) return;
    if (colon < 0) field(text, "");
    else field(text.slice(0, colon), text.slice(text[colon + 1] === " " ? colon + 2 : colon + 1));
  }

  function field(name: string, value: string): void {
    if (name === "data") {
      if (data.push(value) < JOINED_LINES) return;
      joined.push(data.join("\n"));
      data = [];
    } else if (name === "event") event = value;
    else if (name === "id" && !value.includes("\0")) id = value;
    else if (name === "retry" && /^[0-9]{1,9}$/.test(value)) retry = Number(value);
  }

  function dispatch(): void {
    if (data.length > 0 || joined.length > 0 || id !== undefined || retry !== undefined) {
      if (joined.length > 0) data = [...joined, ...data];
      onEvent({ event: event === "" ? "message" : event, data: data.join("\n"), id, retry });
    }
    event = "";
    data = [];
    joined = [];
    id = undefined;
    retry = undefined;
    heldBytes = 0;
  }

  function hold(bytes: number): void {
    heldBytes += bytes;
    if (heldBytes > maxBytes) throw new SseTooLarge(maxBytes);
  }

  return {
    get heldBytes() {
      return heldBytes;
    },
    push(chunk) {
      let start = 0;
      if (atStart && chunk.length > 0) {
        atStart = false;
        if (chunk[0] === 0xef && chunk[1] === 0xbb && chunk[2] === 0xbf) start = 3;
      }
      for (let i = start; i < chunk.length; i++) {
        const byte = chunk[i];
        if (byte !== LF && byte !== CR) {
          lastWasCr = false;
          continue;
        }
        if (byte === LF && lastWasCr) {
          lastWasCr = false;
          start = i + 1;
          continue;
        }
        lastWasCr = byte === CR;
        hold(i - start);
        const rest = chunk.subarray(start, i);
        start = i + 1;
        if (partial === undefined) line(rest);
        else {
          partial.add(rest);
          const whole = partial.end();
          partial = undefined;
          longLine(whole);
        }
      }
      if (start < chunk.length) {
        hold(chunk.length - start);
        partial ??= new TextPieces();
        partial.add(chunk.subarray(start));
      }
    },
  };
}

const LINE_BREAKS = /\r\n|\r|\n/;

/** Writes a `data:` line for every line of `data`, so that no value can end the event early. */
export function encodeSseEvent(event: { event?: string; data: string; id?: string; retryMs?: number }): string {
  let text = "";
  if (event.event !== undefined) text += `event: ${singleLine(event.event)}\n`;
  if (event.id !== undefined) text += `id: ${singleLine(event.id)}\n`;
  if (event.retryMs !== undefined) text += `retry: ${event.retryMs}\n`;
  if (!event.data.includes("\n") && !event.data.includes("\r")) return `${text}data: ${event.data}\n\n`;
  for (const part of event.data.split(LINE_BREAKS)) text += `data: ${part}\n`;
  return `${text}\n`;
}

function singleLine(value: string): string {
  return value.replace(/[\r\n\0]/g, " ");
}
