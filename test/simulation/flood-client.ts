/**
 * A client that opens more connections or MCP sessions than one client may have. The gateway keeps the documented number
 * of them. The other clients check that they are not affected.
 */
import type { ClientReport } from "./http-client.ts";
import { requestText } from "./http-request.ts";
import { Peer, type Stop, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

/** The sessions of one flood have ended when the next one begins. */
const PAUSE_MS = 30 * 60_000;
/** The probability of a flood after each pause. */
const PROBABILITY = 0.2;
/** Longer than every time limit of a request that is not complete. */
const PATIENCE_MS = 60_000;
/** Half of the limit of a listener, which depends on the memory of the simulated process. */
const MOST_CONNECTIONS = 2_048;
const FURTHER_CONNECTIONS = 50;
/** Without faults, the gateway has accepted or rejected every connection after this time. */
const ACCEPTED_MS = 1_000;
/** Shorter than the time limit of a head. */
const SOON_MS = 9_000;
/** The limit of the configuration. */
export const MOST_SESSIONS = 20;
const FURTHER_SESSIONS = 5;
/** Longer than the time after which an idle session can be ended for another one. */
const IDLE_MS = 11_000;
const HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };
const INITIALIZE = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "flood", version: "1" } },
});

export class FloodClient {
  readonly #address: string;
  readonly #random: Seeded;
  readonly #report: ClientReport;

  constructor(address: string, random: Seeded, report: ClientReport) {
    this.#address = address;
    this.#random = random;
    this.#report = report;
  }

  async run(): Promise<void> {
    const { scheduler, isOver } = this.#report;
    for (;;) {
      await sleep(scheduler, PAUSE_MS);
      if (isOver()) return;
      if (!this.#random.chance(PROBABILITY)) continue;
      await (this.#random.chance(0.5) ? this.#openConnections() : this.#openSessions());
    }
  }

  /** Some connections send a part of a request. All are closed by the gateway, unless the client does it first. */
  async #openConnections(): Promise<void> {
    const random = this.#random;
    const { scheduler, broken } = this.#report;
    const startedMs = scheduler.nowMs;
    const gateway = random.int(this.#report.gateways.length);
    const connections = Array.from({ length: MOST_CONNECTIONS + FURTHER_CONNECTIONS }, () => this.#connect(gateway));
    const peers = (await Promise.all(connections)).filter((peer) => peer !== undefined);
    await sleep(scheduler, ACCEPTED_MS);
    const kept = new Map<string, number>();
    for (const { side } of peers) {
      const { isAccepted, isClosed, process } = side.peer;
      if (isAccepted && !isClosed) kept.set(process, (kept.get(process) ?? 0) + 1);
    }
    const counts = [...kept.values()];
    // Threads have limits of their own.
    const isExact = counts.length <= 1 && this.#isExact(startedMs);
    if (counts.some((count) => count > MOST_CONNECTIONS) || (isExact && counts[0] !== MOST_CONNECTIONS))
      broken("an address has as many connections as it may", `${counts}, not ${MOST_CONNECTIONS}`);
    const paceMs = random.size(1, 1_000);
    await Promise.all(peers.map((peer) => this.#close(peer, random.exponential(paceMs))));
  }

  async #close(peer: Peer, afterMs: number): Promise<void> {
    const random = this.#random;
    const { side } = peer;
    const isPartial = random.chance(0.3);
    const staysOpen = random.chance(0.1);
    const isAborted = random.chance(0.5);
    const isOpen = !isPartial || (await peer.write("GET / HTTP/1.1\r\n")) === undefined;
    if (isOpen && staysOpen) {
      let received = await peer.read();
      while (typeof received !== "string") received = await peer.read();
      if (received === "silent" && !side.isBlackhole)
        this.#report.broken("silent clients are disconnected", `${side.label} after ${PATIENCE_MS} ms`);
    } else await sleep(this.#report.scheduler, afterMs);
    if (isAborted) side.abort();
    else side.close();
  }

  /** The gateway refuses further sessions, and later ends idle ones of the client for them. */
  async #openSessions(): Promise<void> {
    const { scheduler, gateways, mustSucceed, broken } = this.#report;
    const startedMs = scheduler.nowMs;
    const gateway = this.#random.int(gateways.length);
    const processes = new Set<string>();
    const open = async (count: number): Promise<string> => {
      const statuses: (number | Stop)[] = [];
      for (let i = 0; i < count; i++) statuses.push(await this.#initialize(gateway, processes));
      return statuses.join();
    };
    const opened = await open(MOST_SESSIONS + FURTHER_SESSIONS);
    const expected = [...Array(MOST_SESSIONS).fill(200), ...Array(FURTHER_SESSIONS).fill(503)].join();
    // Threads have limits of their own.
    const isExact = processes.size <= 1 && this.#isExact(startedMs);
    if (isExact && opened !== expected) broken("a client has as many sessions as it may", opened);
    await sleep(scheduler, IDLE_MS);
    const laterMs = scheduler.nowMs;
    const later = await open(FURTHER_SESSIONS);
    if (mustSucceed(laterMs) && later !== Array(FURTHER_SESSIONS).fill(200).join())
      broken("idle sessions of a client make room for its further ones", later);
  }

  /** Nothing explains another number of connections or sessions. */
  #isExact(startedMs: number): boolean {
    const { scheduler, mustSucceed, upgradedSince } = this.#report;
    return mustSucceed(startedMs) && !upgradedSince(startedMs) && scheduler.nowMs - startedMs < SOON_MS;
  }

  async #connect(gateway: number): Promise<Peer | undefined> {
    const { network, gateways, faults, scheduler } = this.#report;
    const { address = "", port = 0 } = gateways[gateway] ?? {};
    const side = await network.open(this.#address, address, port, faults, PATIENCE_MS);
    return side && new Peer(side, scheduler, PATIENCE_MS);
  }

  /** Opens a session. Adds the process that accepted the connection to `processes`. */
  async #initialize(gateway: number, processes: Set<string>): Promise<number | Stop> {
    const peer = await this.#connect(gateway);
    if (peer === undefined) return "ECONNREFUSED";
    const response = await requestText(peer, "POST", "/mcp", HEADERS, INITIALIZE);
    processes.add(peer.side.peer.process);
    peer.side.close();
    return typeof response === "string" ? response : response.status;
  }
}
