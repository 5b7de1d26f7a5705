/**
 * The clients and servers of a simulation read and write a connection with this, byte by byte, without Node's HTTP.
 */
import type { NetworkError, Side } from "./network.ts";
import type { Scheduler } from "./scheduler.ts";

/** The reason why nothing more can be read. */
export type Stop = "end" | "silent" | NetworkError;

export function sleep(scheduler: Scheduler, ms: number): Promise<void> {
  return new Promise((resolve) => void scheduler.after(ms, resolve));
}

export class Peer {
  readonly side: Side;
  /** A read or write fails with `silent` if nothing happens within this time. */
  limitMs: number;
  readonly #scheduler: Scheduler;
  #chunks: Buffer[] = [];
  #stop: Stop | undefined = undefined;
  #wake: (() => void) | undefined = undefined;

  constructor(side: Side, scheduler: Scheduler, limitMs: number) {
    this.side = side;
    this.#scheduler = scheduler;
    this.limitMs = limitMs;
    side.events = {
      data: (bytes) => {
        this.#chunks.push(bytes);
        // Reads one chunk at a time, so that a slow reader fills the window of the network.
        side.read(false);
        this.#wake?.();
      },
      end: () => this.#over("end"),
      failed: (error) => this.#over(error),
    };
  }

  #over(stop: Stop): void {
    this.#stop ??= stop;
    this.#wake?.();
  }

  async read(): Promise<Buffer | Stop> {
    if (this.#chunks.length === 0 && this.#stop === undefined) {
      this.side.read(true);
      await new Promise<void>((resolve) => {
        const limit = this.#scheduler.after(this.limitMs, () => this.#over("silent"));
        this.#wake = () => {
          this.#wake = undefined;
          this.#scheduler.cancel(limit);
          resolve();
        };
      });
    }
    return this.#chunks.shift() ?? this.#stop ?? "end";
  }

  unread(bytes: Buffer): void {
    if (bytes.length > 0) this.#chunks.unshift(bytes);
  }

  /** Resolves when the network has taken the bytes, or with the error. A peer that does not read ends the wait. */
  write(bytes: Buffer | string): Promise<Stop | undefined> {
    return new Promise((resolve) => {
      const limit = this.#scheduler.after(this.limitMs, () => resolve("silent"));
      this.side.write(Buffer.from(bytes as string), (error) => {
        this.#scheduler.cancel(limit);
        resolve(error);
      });
    });
  }
}

export interface Head {
  readonly first: string;
  readonly headers: ReadonlyMap<string, string>;
}

const HEAD_END = Buffer.from("\r\n\r\n");

async function readUntil(peer: Peer, mark: Buffer | string): Promise<{ text: string } | Stop> {
  let bytes = Buffer.alloc(0);
  for (;;) {
    const at = bytes.indexOf(mark);
    if (at >= 0) {
      peer.unread(bytes.subarray(at + mark.length));
      return { text: bytes.toString("latin1", 0, at) };
    }
    const more = await peer.read();
    if (typeof more === "string") return more;
    bytes = Buffer.concat([bytes, more]);
  }
}

export async function readHead(peer: Peer): Promise<Head | Stop> {
  const head = await readUntil(peer, HEAD_END);
  if (typeof head === "string") return head;
  const [first = "", ...lines] = head.text.split("\r\n");
  const headers = new Map(
    lines.map((line) => [line.split(":", 1)[0]?.toLowerCase() ?? "", line.replace(/^[^:]*: ?/, "")]),
  );
  return { first, headers };
}

/** Passes the body to `received` in order. Resolves with undefined when it is complete. */
export async function readBody(
  peer: Peer,
  { headers }: Head,
  received: (bytes: Buffer) => void | Promise<void>,
  untilEnd: boolean,
): Promise<Stop | undefined> {
  if (headers.get("transfer-encoding") === "chunked") return readChunks(peer, received);
  const length = headers.get("content-length");
  if (length !== undefined) return readBytes(peer, Number(length), received);
  if (!untilEnd) return undefined;
  const stop = await readBytes(peer, Number.POSITIVE_INFINITY, received);
  return stop === "end" ? undefined : stop;
}

async function readBytes(
  peer: Peer,
  length: number,
  received: (bytes: Buffer) => void | Promise<void>,
): Promise<Stop | undefined> {
  let left = length;
  while (left > 0) {
    const bytes = await peer.read();
    if (typeof bytes === "string") return bytes;
    const ours = bytes.subarray(0, left);
    peer.unread(bytes.subarray(ours.length));
    left -= ours.length;
    await received(ours);
  }
  return undefined;
}

async function readChunks(peer: Peer, received: (bytes: Buffer) => void | Promise<void>): Promise<Stop | undefined> {
  for (;;) {
    const line = await readUntil(peer, "\r\n");
    if (typeof line === "string") return line;
    const size = Number.parseInt(line.text, 16);
    const stop = await readBytes(peer, size, received);
    if (stop !== undefined) return stop;
    const end = await readUntil(peer, "\r\n");
    if (typeof end === "string") return end;
    if (size === 0) return undefined;
  }
}

export function chunk(bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]);
}

/** The bytes of an exchange: every part of it names the exchange, so that bytes of another are recognized. */
export function contentOf(nonce: string, from: number, to: number): Buffer {
  const unit = `${nonce}|`;
  const skipped = from % unit.length;
  const text = unit.repeat(Math.ceil((skipped + to - from) / unit.length));
  return Buffer.from(text.slice(skipped, skipped + to - from), "latin1");
}

/** Checks bytes against `contentOf`, in order. */
export class ContentCheck {
  readonly nonce: string;
  bytes = 0;
  isWrong = false;

  constructor(nonce: string) {
    this.nonce = nonce;
  }

  add(bytes: Buffer): void {
    if (!contentOf(this.nonce, this.bytes, this.bytes + bytes.length).equals(bytes)) this.isWrong = true;
    this.bytes += bytes.length;
  }
}
