/**
 * Two connections joined after an upgrade: bytes both ways with back-pressure. Either side's end is passed on at once
 * and ends the tunnel soon; one on which nothing moves ends too; and when the listener goes, both sides are told so
 * with a close frame where one may stand, so that clients come back elsewhere.
 */
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "../../base/clock.ts";
import { fairReads } from "../../http/h1/fair-reads.ts";
import { closeFrame, FrameCounter } from "../../http/websocket-frames.ts";
import { IDLE_LIMIT_MS, type IdleConnections, type Watched, type WatchedPlace } from "./idle.ts";

/** How long a tunnel lives on after one side has ended or was told to go: enough for the last bytes of the other. */
export const TUNNEL_END_MS = 3_000;

export interface TunnelOptions {
  readonly clock: Clock;
  readonly idle: IdleConnections;
  /** Without a byte in either direction. */
  readonly idleLimitMs: number;
  /** Once, when both connections are closed. */
  closed(): void;
  /** An exception while bytes were passed on: it ends the tunnel and nothing else. */
  unexpected(error: unknown): void;
}

interface Direction {
  readonly from: Duplex;
  readonly to: Duplex;
  readonly frames: FrameCounter;
  readonly goodbye: Buffer;
  /** `leaving`: after the frame that is under way the close frame follows; `left`: it was sent. */
  state: "open" | "leaving" | "left";
}

export class Tunnel implements Watched {
  readonly #options: TunnelOptions;
  readonly #client: Duplex;
  readonly #backend: Duplex;
  readonly #directions: readonly Direction[];
  readonly #place: WatchedPlace;
  #endTimer: Timer | undefined = undefined;
  #relayedBytes = 0;
  #open = 2;

  constructor(client: Duplex, backend: Duplex, options: TunnelOptions) {
    this.#options = options;
    this.#client = client;
    this.#backend = backend;
    this.#directions = [
      { from: client, to: backend, frames: new FrameCounter(), goodbye: closeFrame("client"), state: "open" },
      { from: backend, to: client, frames: new FrameCounter(), goodbye: closeFrame("server"), state: "open" },
    ];
    this.#place = options.idle.add(this);
    for (const direction of this.#directions) this.#relay(direction);
  }

  /** Bytes that the client sent together with its request. */
  sendFirst(bytes: Buffer): void {
    if (bytes.length > 0) this.#guard(() => this.#pass(this.#directions[0] as Direction, bytes));
  }

  /** The listener goes, or nobody uses the tunnel. */
  goAway(): void {
    this.#endSoon();
    for (const direction of this.#directions) {
      if (direction.state !== "open") continue;
      direction.state = "leaving";
      if (direction.frames.isAtBoundary) this.#sayGoodbye(direction);
    }
  }

  destroy(): void {
    this.#client.destroy();
    this.#backend.destroy();
  }

  progress(): number {
    // Grows when bytes come, and when bytes that waited go out.
    return 2 * this.#relayedBytes - this.#client.writableLength - this.#backend.writableLength;
  }

  isWaiting(): boolean {
    return true;
  }

  idleLimitMs(): number {
    // A side that does not take its bytes is a stalled client or backend like any other.
    const isStuck = this.#client.writableLength + this.#backend.writableLength > 0;
    return isStuck ? Math.min(IDLE_LIMIT_MS, this.#options.idleLimitMs) : this.#options.idleLimitMs;
  }

  expire(): void {
    this.goAway();
  }

  #relay(direction: Direction): void {
    const { from, to } = direction;
    from.on("data", (chunk: Buffer) => this.#guard(() => this.#pass(direction, chunk)));
    from.on("end", () => {
      to.end();
      this.#endSoon();
    });
    from.on("error", ignore);
    from.on("close", () => this.#guard(() => this.#closed(to)));
    to.on("drain", () => this.#readOn(direction));
    if (from.destroyed) this.#closed(to);
    else from.resume();
  }

  #pass(direction: Direction, chunk: Buffer): void {
    const { from, to, frames } = direction;
    this.#relayedBytes += chunk.length;
    if (direction.state === "left") {
      // The other side's own goodbye: the conversation is over, and it is ours to close.
      frames.read(chunk);
      if (frames.hasClosed) from.end();
      return;
    }
    const taken = frames.read(chunk, direction.state === "leaving");
    if (to.writable && !to.write(taken === chunk.length ? chunk : chunk.subarray(0, taken))) from.pause();
    if (direction.state === "leaving" && frames.isAtBoundary) this.#sayGoodbye(direction);
    else if (fairReads.isHolding && !from.isPaused()) {
      from.pause();
      this.#readOn(direction);
    }
  }

  #readOn(direction: Direction): void {
    fairReads.run(() => {
      if (direction.state === "left" || !direction.to.writableNeedDrain) direction.from.resume();
    });
  }

  #sayGoodbye(direction: Direction): void {
    direction.state = "left";
    const { from, to, frames, goodbye } = direction;
    if (!frames.hasClosed && to.writable) to.write(goodbye);
    // Read on, also if the other side is slow: its end must be noticed.
    from.resume();
  }

  #closed(other: Duplex): void {
    this.#open -= 1;
    if (this.#open === 0) {
      this.#endTimer?.cancel();
      this.#options.idle.remove(this.#place);
      this.#options.closed();
      return;
    }
    this.#endSoon();
    // What was taken from the side that is gone still goes out.
    if (other.writableLength === 0 || other.destroyed) other.destroy();
    else {
      other.end();
      other.once("finish", () => other.destroy());
    }
  }

  #endSoon(): void {
    this.#endTimer ??= this.#options.clock.after(TUNNEL_END_MS, () => {
      for (const socket of [this.#client, this.#backend]) {
        socket.end();
        socket.destroy();
      }
    });
  }

  #guard(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#options.unexpected(error);
      this.destroy();
    }
  }
}

function ignore(): void {
  // The close event that follows says what there is to say.
}
