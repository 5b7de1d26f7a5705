/**
 * A client that exceeds the documented limits of requests: each attack gets the documented status or is disconnected,
 * and reaches no backend. The other clients check that they are not affected.
 */
import type { ClientReport } from "./http-client.ts";
import { Peer, readBody, readHead, type Stop, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";
import { TOKEN_HOST } from "./token-client.ts";

/** Average time between two attacks. */
const PAUSE_MS = 5 * 60_000;
/** Longer than every time limit of a request that is not complete. */
const PATIENCE_MS = 60_000;
/** The gateway's response arrives within this time. */
const RESPONSE_MS = 45_000;
const MOST_CONNECTIONS = 20;
/** A slow network delays the head, or the gateway is about to stop. */
const OTHER_STATUSES = new Set([408, 503]);

interface Attack {
  readonly name: string;
  /** The status of the response. */
  readonly status: number;
  readonly text: string;
  /** The pieces that follow, at intervals of `paceMs`. */
  readonly paceMs?: number;
  readonly pieces?: readonly string[];
}

const line = (count: number): string => Array.from({ length: count }, (_, i) => `x-${i}: ${i}\r\n`).join("");
const head = (method: string, path: string, headers: string): string =>
  `${method} ${path} HTTP/1.1\r\nhost: a.test\r\n${headers}\r\n`;
const chunked = "transfer-encoding: chunked\r\n";
const jsonTypes = "content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
const json = (path: string, body: string): string =>
  head("POST", path, `${jsonTypes}content-length: ${body.length}\r\n`) + body;
const chunkedBody = `${head("POST", "/v1/chat/completions", chunked)}2\r\n{}\r\n`;
const initialize = (clientInfo: object): string => {
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo };
  return JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params });
};
const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);

const ATTACKS: readonly Attack[] = [
  { name: "a large head", status: 431, text: head("GET", "/", `x: ${"a".repeat(17_000)}\r\n`) },
  { name: "many header lines", status: 431, text: head("GET", "/", line(101)) },
  { name: "a large path", status: 431, text: head("GET", `/${"a".repeat(17_000)}`, "") },
  { name: "two lengths", status: 400, text: head("POST", "/", "content-length: 1\r\ncontent-length: 2\r\n") },
  { name: "a length and chunks", status: 400, text: head("POST", "/", `content-length: 1\r\n${chunked}`) },
  { name: "empty lines before the request", status: 400, text: `${"\r\n".repeat(20)}${head("GET", "/", "")}` },
  { name: "a large chunk size", status: 400, text: `${head("POST", "/v1/chat/completions", chunked)}123456789\r\n` },
  {
    name: "large chunk extensions",
    status: 413,
    text: `${head("POST", "/v1/chat/completions", chunked)}1;${"a".repeat(17_000)}\r\n`,
  },
  { name: "large trailers", status: 431, text: `${chunkedBody}0\r\nx: ${"a".repeat(9_000)}\r\n\r\n` },
  { name: "many trailers", status: 431, text: `${chunkedBody}0\r\n${line(101)}\r\n` },
  {
    name: "a large LLM request",
    status: 413,
    text: head("POST", "/v1/chat/completions", "content-length: 33554433\r\n"),
  },
  {
    name: "a large initialize request",
    status: 400,
    text: json("/mcp", initialize({ name: "a".repeat(70_000), version: "1" })),
  },
  { name: "a body beyond its length", status: 400, text: `${json("/mcp", "{}")}{}\r\n\r\n` },
  { name: "a nested MCP message", status: 400, text: json("/mcp", nested(1_000)) },
  { name: "a batch of many MCP messages", status: 400, text: json("/mcp", `[${"{},".repeat(100)}{}]`) },
  { name: "a nested LLM request", status: 400, text: json("/v1/chat/completions", `{"a":${nested(1_000)}}`) },
  { name: "a slow head", status: 408, text: "GET / HTTP/1.1\r\n", paceMs: 900, pieces: [..."x".repeat(200)] },
];

export class HostileClient {
  readonly #address: string;
  readonly #random: Seeded;
  readonly #report: ClientReport;

  constructor(address: string, random: Seeded, report: ClientReport) {
    this.#address = address;
    this.#random = random;
    this.#report = report;
  }

  async run(): Promise<void> {
    const { scheduler } = this.#report;
    for (;;) {
      await sleep(scheduler, this.#random.exponential(PAUSE_MS));
      if (this.#report.isOver()) return;
      const connections = this.#random.chance(0.2) ? 1 + this.#random.int(MOST_CONNECTIONS) : 1;
      await Promise.all(Array.from({ length: connections }, () => this.#attack()));
    }
  }

  async #attack(): Promise<void> {
    const { network, gateways, faults, scheduler } = this.#report;
    const gateway = this.#random.pick(gateways);
    const side = await network.open(this.#address, gateway.address, gateway.port, faults, PATIENCE_MS);
    if (side === undefined) return;
    const peer = new Peer(side, scheduler, PATIENCE_MS);
    if (this.#random.chance(0.2)) await this.#pipeline(peer);
    else if (this.#random.chance(0.1)) await this.#stayIdle(peer);
    else await this.#exceed(peer, this.#random.pick(ATTACKS));
    if (this.#random.chance(0.3)) side.abort();
    else side.close();
  }

  async #exceed(peer: Peer, { name, status, text, paceMs = 0, pieces = [] }: Attack): Promise<void> {
    const { scheduler, mustSucceed } = this.#report;
    const sentMs = scheduler.nowMs;
    /** When the network has taken everything. */
    let takenMs = Number.POSITIVE_INFINITY;
    const send = async (): Promise<void> => {
      if ((await peer.write(text)) === undefined) takenMs = scheduler.nowMs;
      for (const piece of pieces) {
        await sleep(scheduler, paceMs);
        if (peer.side.isClosed || (await peer.write(piece)) !== undefined) return;
      }
    };
    void send();
    const received = await readStatus(peer);
    if (received === status) return;
    const isEnded = received !== "silent" || peer.side.isBlackhole || scheduler.nowMs - takenMs < RESPONSE_MS;
    const isDocumented = typeof received === "string" ? isEnded : OTHER_STATUSES.has(received);
    if (!isDocumented || mustSucceed(sentMs))
      this.#report.broken("requests beyond a limit get the documented status", `${name}: ${received}, not ${status}`);
  }

  /** Sends requests without waiting. Each gets its response, in order, up to the end of the connection. */
  async #pipeline(peer: Peer): Promise<void> {
    const sentMs = this.#report.scheduler.nowMs;
    const count = 1 + this.#random.int(200);
    void peer.write(`GET / HTTP/1.1\r\nhost: ${TOKEN_HOST}\r\n\r\n`.repeat(count));
    for (let received = 0; received < count; received++) {
      const status = await readStatus(peer);
      if (status === 401) continue;
      if (typeof status === "number" || this.#report.mustSucceed(sentMs))
        this.#report.broken("pipelined requests are answered", `${status} after ${received} of ${count}`);
      return;
    }
  }

  /** Sends nothing. The gateway closes the connection. */
  async #stayIdle(peer: Peer): Promise<void> {
    const stop = await peer.read();
    if (stop === "silent" && !peer.side.isBlackhole)
      this.#report.broken("silent clients are disconnected", `${peer.side.label} after ${PATIENCE_MS} ms`);
  }
}

async function readStatus(peer: Peer): Promise<number | Stop> {
  const head = await readHead(peer);
  if (typeof head === "string") return head;
  const stop = await readBody(peer, head, () => undefined, false);
  return stop ?? Number(head.first.split(" ")[1]);
}
