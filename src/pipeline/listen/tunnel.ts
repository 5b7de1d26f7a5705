/**
 * Relays bytes between two connections after an upgrade, with backpressure.
 */
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "../../base/clock.ts";
import type { StreamAccount, StreamPool } from "../../base/memory-budget.ts";
import { type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { fairReads } from "../../http/h1/socket-reads.ts";
import { closeFrame, FrameCounter } from "../../http/websocket-frames.ts";
import { type IdleConnections, joinedConnections, type WatchedPlace } from "./idle.ts";

const CLIENT_FRAME = peerInput("client/websocket-frame");
const BACKEND_FRAME = peerInput("backend/websocket-frame");

/** A tunnel is destroyed at the latest this long after one side has ended or `goAway` was called. */
const TUNNEL_END_MS = 3_000;

export interface TunnelOptions {
  readonly clock: Clock;
  readonly idle: IdleConnections;
  /** Bytes that wait for either side are charged to this pool. */
  readonly waitingBytes: StreamPool;
  readonly chargedTo: string;
  /** The tunnel is closed after this time without data in either direction, or earlier if a side does not read. */
  readonly idleLimitMs: number;
  /** If false, the bytes are relayed without looking for frames, and no close frames are sent. */
  readonly isWebSocket: boolean;
  closed(): void;
  /** Called for an exception while relaying bytes, which ends only this tunnel. */
  unexpected(error: unknown): void;
}

interface Direction {
  readonly from: Duplex;
  readonly to: Duplex;
  readonly frames: FrameCounter;
  readonly goodbye: Buffer;
  /** In state `leaving`, the close frame follows after the current frame. In state `left`, it was sent. */
  state: "open" | "leaving" | "left";
}

export class Tunnel {
  readonly #options: TunnelOptions;
  readonly #client: Duplex;
  readonly #backend: Duplex;
  readonly #directions: readonly Direction[];
  readonly #place: WatchedPlace;
  readonly #account: StreamAccount;
  #endTimer: Timer | undefined = undefined;
  #relayedBytes = 0;
  #open = 2;

  constructor(client: Duplex, backend: Duplex, options: TunnelOptions) {
    this.#options = options;
    this.#client = client;
    this.#backend = backend;
    this.#directions = [
      createDirection(client, backend, closeFrame("client"), CLIENT_FRAME),
      createDirection(backend, client, closeFrame("server"), BACKEND_FRAME),
    ];
    this.#place = options.idle.add(
      joinedConnections(
        [client, backend],
        options.idleLimitMs,
        () => this.#relayedBytes,
        () => this.goAway(),
      ),
    );
    this.#account = options.waitingBytes.open(options.chargedTo, () => this.destroy());
  }

  /**
   * Relays bytes from now on, beginning with those that the client sent together with its request. If a side is already
   * closed, the tunnel may close during this call.
   */
  start(firstBytes: Buffer): void {
    for (const direction of this.#directions) this.#relay(direction);
    if (firstBytes.length > 0) this.#guard(() => this.#pass(this.#directions[0] as Direction, firstBytes));
  }

  /** Sends a WebSocket close frame in each direction, and destroys the tunnel after `TUNNEL_END_MS`. */
  goAway(): void {
    if (this.#open === 0) return;
    this.#endSoon();
    if (!this.#options.isWebSocket) return;
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

  #relay(direction: Direction): void {
    const { from, to } = direction;
    from.on("error", ignore);
    // The close event of a destroyed socket may still follow, so the end is counted only once.
    if (from.destroyed) {
      this.#closed(to);
      return;
    }
    from.on("data", (chunk: Buffer) => this.#guard(() => this.#pass(direction, chunk)));
    from.on("end", () => {
      to.end();
      this.#endSoon();
    });
    from.on("close", () => this.#guard(() => this.#closed(to)));
    to.on("drain", () => {
      this.#charge();
      this.#readOn(direction);
    });
    from.resume();
  }

  #pass(direction: Direction, chunk: Buffer): void {
    const { from, to, frames } = direction;
    this.#relayedBytes += chunk.length;
    if (direction.state === "left") {
      // After the peer's own close frame, the WebSocket is closed, and the gateway ends the connection.
      frames.read(chunk);
      if (frames.hasClosed) from.end();
      return;
    }
    const taken = this.#options.isWebSocket ? frames.read(chunk, direction.state === "leaving") : chunk.length;
    if (to.writable && !to.write(taken === chunk.length ? chunk : chunk.subarray(0, taken))) {
      from.pause();
      this.#charge();
    }
    if (direction.state === "leaving" && frames.isAtBoundary) this.#sayGoodbye(direction);
    else if (fairReads.isHolding && !from.isPaused()) {
      from.pause();
      this.#readOn(direction);
    }
  }

  #charge(): void {
    this.#account.resize(this.#client.writableLength + this.#backend.writableLength);
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
    // Reading continues even if the other side is slow, to detect the end.
    from.resume();
  }

  #closed(other: Duplex): void {
    this.#open -= 1;
    if (this.#open === 0) {
      this.#endTimer?.cancel();
      this.#options.idle.remove(this.#place);
      this.#account.close();
      this.#options.closed();
      return;
    }
    this.#endSoon();
    // Bytes received from the closed side are still written.
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

function createDirection(from: Duplex, to: Duplex, goodbye: Buffer, frame: PeerInput<"WebSocket">): Direction {
  return { from, to, frames: new FrameCounter(frame), goodbye, state: "open" };
}

function ignore(): void {
  // A close event follows.
}
