/**
 * A client that sends requests until it is stopped: plain, with bodies, streamed, pipelined, upgraded, aborted, and
 * malformed ones. It checks every response.
 */
import { type Order, pathOf } from "./http-backend.ts";
import type { Faults, Network } from "./network.ts";
import { ContentCheck, chunk, contentOf, Peer, readBody, readHead, type Stop, sleep } from "./peer.ts";
import type { Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

export interface ClientReport {
  readonly scheduler: Scheduler;
  readonly network: Network;
  /** The addresses and ports of the gateways. */
  readonly gateways: readonly { readonly address: string; readonly port: number }[];
  readonly faults: Faults;
  /** The average time between two connections of a client. */
  readonly pauseMs: number;
  /** No part of the simulation fails. */
  readonly isCalm: boolean;
  isOver(): boolean;
  /**
   * Nothing explains that a request fails now, if it was sent at `sentMs`. With `thread`, crashes of other threads
   * explain nothing.
   */
  mustSucceed(sentMs?: number, thread?: string): boolean;
  /** A gateway was upgraded since this time, which closes WebSockets. */
  upgradedSince(ms: number): boolean;
  /** A gateway, its store, or a thread failed in this time, so that spending may be lost. */
  failedBetween(fromMs: number, toMs: number, thread?: string): boolean;
  /** A client has sent a request completely, unless it aborts it. */
  sent(nonce: string, method: string): void;
  /** A client has received the head of a response. */
  answered(nonce: string, status: number): void;
  /** An LLM client has received a complete response with this many tokens. */
  spent(address: string, tokens: number): void;
  broken(invariant: string, detail: string): void;
}

/** A client gives up after this time without a byte: longer than every time limit of the gateway. */
const PATIENCE_MS = 200_000;
/** The gateway's own responses. */
const GATEWAY_ERRORS = new Set([408, 429, 502, 503, 504]);

interface Exchange {
  readonly method: string;
  readonly order: Order;
  readonly isChunked: boolean;
}

export class HttpClient {
  readonly #name: string;
  readonly #address: string;
  readonly #report: ClientReport;
  readonly #random: Seeded;
  #requests = 0;

  constructor(index: number, random: Seeded, report: ClientReport) {
    this.#name = `c${index}`;
    this.#address = `10.1.${index >> 8}.${index & 255}`;
    this.#random = random;
    this.#report = report;
  }

  async run(): Promise<void> {
    const { scheduler, pauseMs } = this.#report;
    while (!this.#report.isOver()) {
      await sleep(scheduler, this.#random.exponential(pauseMs));
      if (this.#report.isOver()) return;
      await this.#visit();
    }
  }

  /** Opens a connection and sends one or several requests. */
  async #visit(): Promise<void> {
    const { network, gateways, faults } = this.#report;
    const gateway = this.#random.pick(gateways);
    const side = await network.open(this.#address, gateway.address, gateway.port, faults, PATIENCE_MS);
    if (side === undefined) {
      if (this.#report.mustSucceed()) this.#report.broken("connections are accepted", this.#name);
      return;
    }
    const peer = new Peer(side, this.#report.scheduler, PATIENCE_MS);
    await this.#talk(peer);
    if (this.#random.chance(0.1)) side.abort();
    else side.close();
  }

  async #talk(peer: Peer): Promise<void> {
    const random = this.#random;
    if (random.chance(0.1)) return this.#upgrade(peer);
    if (!this.#report.isCalm && random.chance(0.03)) return this.#misbehave(peer);
    for (let left = 1 + random.int(4); left > 0; left--) {
      const exchanges = random.chance(0.15) ? random.list(3, () => this.#get()) : [this.#any()];
      if (!(await this.#exchange(peer, exchanges))) return;
      await sleep(this.#report.scheduler, random.exponential(500));
    }
  }

  #order(requestBytes: number): Order {
    const random = this.#random;
    const isCalm = this.#report.isCalm;
    this.#requests += 1;
    const isStream = random.chance(0.1);
    return {
      nonce: `${this.#name}-${this.#requests}`,
      requestBytes,
      responseBytes: random.chance(0.1) ? 0 : random.size(1, random.chance(0.05) ? 2_000_000 : 20_000),
      framing: random.pick(["length", "length", "chunked", "chunked", "close"]),
      delayMs: Math.round(random.exponential(random.chance(0.02) && !isCalm ? 60_000 : 50)),
      pieces: isStream ? 1 + random.int(20) : 1 + random.int(3),
      gapMs: Math.round(random.exponential(isStream ? 2_000 : 5)),
      closes: random.chance(0.05),
      breaks: isCalm || random.chance(0.96) ? "never" : random.pick(["head", "body"]),
      isEarly: random.chance(0.05),
    };
  }

  #get(): Exchange {
    return { method: "GET", order: this.#order(0), isChunked: false };
  }

  #any(): Exchange {
    const random = this.#random;
    if (random.chance(0.6)) return this.#get();
    if (random.chance(0.1)) return { ...this.#get(), method: "HEAD" };
    const order = this.#order(random.chance(0.1) ? 0 : random.size(1, random.chance(0.05) ? 1_000_000 : 30_000));
    return { method: random.pick(["POST", "PUT"]), order, isChunked: random.chance(0.5) };
  }

  /** Resolves with true if the connection can be used again. */
  async #exchange(peer: Peer, exchanges: readonly Exchange[]): Promise<boolean> {
    const random = this.#random;
    const isAborted = random.chance(0.04);
    const sentMs = this.#report.scheduler.nowMs;
    const sending = this.#send(peer, exchanges, isAborted && random.chance(0.3));
    if (isAborted) {
      await sleep(this.#report.scheduler, random.exponential(100));
      return false;
    }
    let isOpen = true;
    for (const exchange of exchanges) if (isOpen) isOpen = await this.#receive(peer, exchange, sentMs);
    // The gateway may respond before it has read the body.
    return (await sending) === undefined && isOpen;
  }

  async #send(peer: Peer, exchanges: readonly Exchange[], isCut: boolean): Promise<Stop | undefined> {
    const random = this.#random;
    for (const { method, order, isChunked } of exchanges) {
      const { nonce, requestBytes } = order;
      const hasBody = method === "POST" || method === "PUT";
      const framing = isChunked ? "transfer-encoding: chunked\r\n" : `content-length: ${requestBytes}\r\n`;
      const head = `${method} ${pathOf(order)} HTTP/1.1\r\nhost: a.test\r\nx-nonce: ${nonce}\r\n${hasBody ? framing : ""}\r\n`;
      if (isCut) return peer.write(head.slice(0, random.int(head.length)));
      this.#report.sent(nonce, method);
      const failed = await peer.write(head);
      if (failed !== undefined) return failed;
      if (!hasBody) continue;
      const pieceBytes = Math.max(1, Math.ceil(requestBytes / (1 + random.int(5))));
      for (let from = 0; from < requestBytes; from += pieceBytes) {
        const bytes = contentOf(nonce, from, Math.min(requestBytes, from + pieceBytes));
        const stop = await peer.write(isChunked ? chunk(bytes) : bytes);
        if (stop !== undefined) return stop;
        if (random.chance(0.2)) await sleep(this.#report.scheduler, random.exponential(300));
      }
      const last = isChunked ? await peer.write("0\r\n\r\n") : undefined;
      if (last !== undefined) return last;
    }
    return undefined;
  }

  async #receive(peer: Peer, { method, order }: Exchange, sentMs: number): Promise<boolean> {
    const { nonce, responseBytes } = order;
    const random = this.#random;
    const head = await readHead(peer);
    if (typeof head === "string") return this.#ended(peer, nonce, head, "no response", sentMs);
    const status = Number(head.first.split(" ")[1]);
    this.#report.answered(nonce, status);
    const ofBackend = head.headers.get("x-nonce");
    if (ofBackend !== undefined && ofBackend !== nonce)
      this.#report.broken("responses stay apart", `${nonce} got the head of ${ofBackend}`);
    const mustSucceed = this.#report.mustSucceed(sentMs, peer.side.peer.process);
    if (ofBackend === undefined && (mustSucceed || !GATEWAY_ERRORS.has(status)))
      this.#report.broken("requests succeed", `${nonce} got ${head.first}`);
    const check = new ContentCheck(nonce);
    const isSlow = random.chance(0.05);
    const received = async (bytes: Buffer): Promise<void> => {
      if (ofBackend !== undefined) check.add(bytes);
      if (isSlow) await sleep(this.#report.scheduler, random.exponential(200));
    };
    const stop = method === "HEAD" ? undefined : await readBody(peer, head, received, true);
    if (check.isWrong) this.#report.broken("responses stay apart", `${nonce} got other bytes`);
    if (stop !== undefined) return this.#ended(peer, nonce, stop, `${check.bytes} of ${responseBytes} bytes`, sentMs);
    const expected = method === "HEAD" ? 0 : responseBytes;
    // Without a length, a response that the backend did not finish cannot be distinguished from a complete one.
    const hasLength = order.framing !== "close" || this.#report.mustSucceed(sentMs);
    if (ofBackend !== undefined && check.bytes !== expected && hasLength)
      this.#report.broken("responses are complete", `${nonce}: ${check.bytes} of ${expected} bytes`);
    return head.headers.get("connection") !== "close";
  }

  /** A connection that a slow reader uses may have ended before the request was sent. */
  #ended({ side }: Peer, nonce: string, stop: Stop, what: string, sentMs: number): false {
    if (this.#report.mustSucceed(Math.min(sentMs, side.endedMs), side.peer.process))
      this.#report.broken("requests succeed", `${nonce}: ${what}, ${stop}`);
    return false;
  }

  /** Sends WebSocket frames and expects the same bytes back. */
  async #upgrade(peer: Peer): Promise<void> {
    const random = this.#random;
    const order = this.#order(0);
    const { nonce } = order;
    const sentMs = this.#report.scheduler.nowMs;
    const cut = (stop: Stop, what: string): void => {
      if (!this.#report.upgradedSince(sentMs)) this.#ended(peer, nonce, stop, what, sentMs);
    };
    this.#report.sent(nonce, "GET");
    await peer.write(
      `GET ${pathOf(order)} HTTP/1.1\r\nhost: a.test\r\nx-nonce: ${nonce}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n` +
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    // The connection closes at about the time of the backend's response.
    if (random.chance(0.3)) return sleep(this.#report.scheduler, order.delayMs + random.between(0, 60));
    const head = await readHead(peer);
    if (typeof head === "string") return void this.#ended(peer, nonce, head, "no response", sentMs);
    const status = Number(head.first.split(" ")[1]);
    this.#report.answered(nonce, status);
    if (status !== 101) {
      if (this.#report.mustSucceed() || !GATEWAY_ERRORS.has(status))
        this.#report.broken("requests succeed", `${nonce} got ${head.first}`);
      return;
    }
    if (head.headers.get("x-nonce") !== nonce)
      this.#report.broken("responses stay apart", `${nonce} got the head of ${head.headers.get("x-nonce")}`);
    for (let frames = 1 + random.int(10); frames > 0; frames--) {
      const frame = maskedFrame(contentOf(nonce, 0, random.size(1, 60_000)));
      const failed = await peer.write(frame);
      if (failed !== undefined) return cut(failed, "frame not sent");
      for (let got = 0; got < frame.length; ) {
        const bytes = await peer.read();
        if (typeof bytes === "string") return cut(bytes, "no echo");
        const expected = frame.subarray(got, got + bytes.length);
        const echo = bytes.subarray(0, expected.length);
        // The gateway adds a close frame between two frames when it shuts down.
        if (got === 0 && isCloseFrame(bytes)) return;
        if (!expected.equals(echo)) return this.#report.broken("responses stay apart", `${nonce} got another echo`);
        const rest = bytes.subarray(echo.length);
        if (rest.length > 0 && isCloseFrame(rest)) return;
        if (rest.length > 0) return this.#report.broken("responses stay apart", `${nonce} got more than its echo`);
        got += echo.length;
      }
      await sleep(this.#report.scheduler, random.exponential(random.chance(0.2) ? 20_000 : 500));
    }
  }

  /** Sends an incomplete or malformed head. The gateway must close the connection within its limits. */
  async #misbehave(peer: Peer): Promise<void> {
    await peer.write(
      this.#random.pick(["GET / HTTP/1.1\r\nhost", "\0\0\0\0 garbage\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n"]),
    );
    for (;;) {
      const bytes = await peer.read();
      if (bytes === "silent" && !peer.side.isBlackhole)
        this.#report.broken("silent clients are disconnected", `${peer.side.label} after ${PATIENCE_MS} ms`);
      if (typeof bytes === "string") return;
    }
  }
}

const MASK_BIT = 0x80;
const BINARY = 0x82;
const CLOSE = 0x88;

/** A binary frame with the mask 0, which leaves the bytes unchanged. */
function maskedFrame(bytes: Buffer): Buffer {
  const head = bytes.length < 126 ? Buffer.alloc(6) : Buffer.alloc(8);
  head[0] = BINARY;
  if (bytes.length < 126) head[1] = MASK_BIT | bytes.length;
  else {
    head[1] = MASK_BIT | 126;
    head.writeUInt16BE(bytes.length, 2);
  }
  return Buffer.concat([head, bytes]);
}

function isCloseFrame(bytes: Buffer): boolean {
  return bytes[0] === CLOSE;
}
