/**
 * A backend whose behavior is in the path of each request (`Order`). It checks that the request is the one that the
 * client sent, and counts how often each arrived.
 */
import type { Network, Side } from "./network.ts";
import { ContentCheck, chunk, contentOf, type Head, Peer, readBody, readHead, sleep } from "./peer.ts";
import { OUTSIDE, type Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

/** The path of a request: what the backend shall answer. */
export interface Order {
  readonly nonce: string;
  /** The length of the request's body. */
  readonly requestBytes: number;
  readonly responseBytes: number;
  readonly framing: "length" | "chunked" | "close";
  /** Before the head. */
  readonly delayMs: number;
  /** The body is written in this many pieces, with `gapMs` between them. */
  readonly pieces: number;
  readonly gapMs: number;
  /** Closes the connection after the response. */
  readonly closes: boolean;
  /** Breaks the connection: before the head, or after half of the body. */
  readonly breaks: "never" | "head" | "body";
  /** Responds before it reads the request's body. */
  readonly isEarly: boolean;
}

const FIELDS = [
  "nonce",
  "requestBytes",
  "responseBytes",
  "framing",
  "delayMs",
  "pieces",
  "gapMs",
  "closes",
  "breaks",
  "isEarly",
];

export function pathOf(order: Order): string {
  return `/${FIELDS.map((field) => String(order[field as keyof Order])).join("/")}`;
}

function orderOf(path: string): Order {
  const [nonce = "", requestBytes, responseBytes, framing, delayMs, pieces, gapMs, closes, breaks, isEarly] = path
    .slice(1)
    .split("/");
  return {
    nonce,
    requestBytes: Number(requestBytes),
    responseBytes: Number(responseBytes),
    framing: framing as Order["framing"],
    delayMs: Number(delayMs),
    pieces: Number(pieces),
    gapMs: Number(gapMs),
    closes: closes === "true",
    breaks: breaks as Order["breaks"],
    isEarly: isEarly === "true",
  };
}

/** Backends keep an idle connection this long; the gateway may send a request just when it closes. */
const KEEP_ALIVE_MS = 20_000;
const PATIENCE_MS = 300_000;
/** A client that reads slowly may take this long for a part of a response. */
const SLOW_READER_MS = 1_800_000;
/** A backend that sent `connection: close` waits this long for the other side to close. */
const CLOSE_MS = 2_000;

export interface BackendReport {
  readonly scheduler: Scheduler;
  readonly network: Network;
  /** No part of the simulation fails. */
  readonly isCalm: boolean;
  /** Nothing explains that a request fails now, if it was sent at `sentMs`. */
  mustSucceed(sentMs?: number): boolean;
  /** A request has arrived at a backend. */
  arrived(nonce: string): void;
  broken(invariant: string, detail: string): void;
}

export class HttpBackend {
  readonly #report: BackendReport;
  readonly #random: Seeded;
  readonly #open = new Set<Side>();
  #isClosing = false;

  constructor(address: string, port: number, random: Seeded, report: BackendReport) {
    this.#report = report;
    this.#random = random;
    report.network.listen(address, port, { process: OUTSIDE, accept: (side) => void this.#serve(side) });
  }

  /** Idle connections end; the others after their response. */
  close(): void {
    this.#isClosing = true;
    for (const side of this.#open) side.close();
  }

  async #serve(side: Side): Promise<void> {
    const { scheduler } = this.#report;
    const peer = new Peer(side, scheduler, PATIENCE_MS);
    const keepAliveMs = !this.#report.isCalm && this.#random.chance(0.2) ? KEEP_ALIVE_MS : PATIENCE_MS;
    this.#open.add(side);
    while (!this.#isClosing) {
      peer.limitMs = keepAliveMs;
      const head = await readHead(peer);
      if (typeof head === "string") break;
      peer.limitMs = PATIENCE_MS;
      if (!(await this.#respond(peer, head))) break;
    }
    this.#open.delete(side);
    side.close();
  }

  /** Resolves with true if the connection can be used again. */
  async #respond(peer: Peer, head: Head): Promise<boolean> {
    const { scheduler } = this.#report;
    const [method = "", path = ""] = head.first.split(" ");
    const order = orderOf(path);
    this.#report.arrived(order.nonce);
    if (head.headers.get("x-nonce") !== order.nonce)
      this.#report.broken("requests stay apart", `${order.nonce} has the header ${head.headers.get("x-nonce")}`);
    if (head.headers.get("upgrade") === "websocket") return this.#echo(peer, order);
    if (!order.isEarly && !(await this.#readBody(peer, head, order))) return false;
    await sleep(scheduler, order.delayMs);
    if (order.breaks === "head") return this.#abort(peer);
    peer.limitMs = SLOW_READER_MS;
    const isKept = await this.#sendResponse(peer, order, method === "HEAD");
    if (order.isEarly && !(await this.#readBody(peer, head, order))) return false;
    if (order.closes) await this.#waitForClose(peer, order);
    return isKept;
  }

  async #readBody(peer: Peer, head: Head, { nonce, requestBytes }: Order): Promise<boolean> {
    const check = new ContentCheck(nonce);
    const stop = await readBody(peer, head, (bytes) => check.add(bytes), false);
    if (check.isWrong) this.#report.broken("requests stay apart", `the body of ${nonce} has other bytes`);
    if (stop === undefined && check.bytes !== requestBytes)
      this.#report.broken("requests are complete", `${nonce}: ${check.bytes} of ${requestBytes} bytes`);
    return stop === undefined;
  }

  async #waitForClose(peer: Peer, { nonce }: Order): Promise<void> {
    peer.limitMs = CLOSE_MS;
    if (typeof (await peer.read()) !== "string")
      this.#report.broken("connection: close is respected", `a request followed ${nonce}`);
  }

  async #sendResponse(peer: Peer, order: Order, isHead: boolean): Promise<boolean> {
    const { nonce, responseBytes, framing, pieces, gapMs, closes } = order;
    const length = framing === "length" ? `content-length: ${responseBytes}\r\n` : "";
    const chunked = framing === "chunked" ? "transfer-encoding: chunked\r\n" : "";
    const isLast = closes || framing === "close";
    const connection = isLast ? "connection: close\r\n" : "";
    const failed = await peer.write(
      `HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-nonce: ${nonce}\r\n${length}${chunked}${connection}\r\n`,
    );
    if (failed !== undefined) return false;
    const pieceBytes = Math.max(1, Math.ceil(responseBytes / pieces));
    for (let from = 0; from < responseBytes && !isHead; from += pieceBytes) {
      if (order.breaks === "body" && from >= responseBytes / 2) return this.#abort(peer);
      if (from > 0) await sleep(this.#report.scheduler, gapMs);
      const bytes = contentOf(nonce, from, Math.min(responseBytes, from + pieceBytes));
      if ((await peer.write(framing === "chunked" ? chunk(bytes) : bytes)) !== undefined) return false;
    }
    if (framing === "chunked" && !isHead && (await peer.write("0\r\n\r\n")) !== undefined) return false;
    return !isLast;
  }

  async #abort(peer: Peer): Promise<boolean> {
    if (this.#random.chance(0.5)) peer.side.abort();
    return false;
  }

  /** Sends back what arrives, until either side ends. */
  async #echo(peer: Peer, { nonce, delayMs, breaks }: Order): Promise<boolean> {
    await sleep(this.#report.scheduler, delayMs);
    if (breaks === "head") return this.#abort(peer);
    await peer.write(
      `HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nconnection: Upgrade\r\nupgrade: websocket\r\nx-nonce: ${nonce}\r\n\r\n`,
    );
    for (;;) {
      const bytes = await peer.read();
      if (typeof bytes === "string") return false;
      if (breaks === "body" && this.#random.chance(0.3)) return this.#abort(peer);
      if ((await peer.write(bytes)) !== undefined) return false;
    }
  }
}
