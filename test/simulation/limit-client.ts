/**
 * A client of a route with a local rate limit. It sends several requests at once and some later, over new connections to
 * one gateway, and checks that the limit admits exactly what it allows, whichever thread gets them.
 */
import { pathOf } from "./http-backend.ts";
import type { ClientReport } from "./http-client.ts";
import { requestText } from "./http-request.ts";
import { Peer, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

export const LIMITED_HOST = "limited.test";
/** Each value of this header has a limit of its own. */
export const LIMIT_KEY = "x-limit-key";
/** Per hour. All requests with a key are sent in a shorter time. */
export const LIMIT = 5;
const ADDRESS = "10.9.0.2";
const PATIENCE_MS = 200_000;
const MOST_REQUESTS = 2 * LIMIT;
/** A thread that crashes resets no limit. */
const NO_THREAD = "none";
const LONGEST_PAUSE_MS = 120_000;

export class LimitClient {
  readonly #random: Seeded;
  readonly #report: ClientReport;
  #requests = 0;
  #keys = 0;

  constructor(random: Seeded, report: ClientReport) {
    this.#random = random;
    this.#report = report;
  }

  async run(): Promise<void> {
    const { scheduler, pauseMs } = this.#report;
    while (!this.#report.isOver()) {
      await sleep(scheduler, this.#random.exponential(pauseMs));
      if (this.#report.isOver()) return;
      await this.#useKey();
    }
  }

  async #useKey(): Promise<void> {
    const random = this.#random;
    const { scheduler, gateways, mustSucceed, upgradedSince, failedBetween, broken } = this.#report;
    this.#keys += 1;
    const key = `key-${this.#keys}`;
    const gateway = random.pick(gateways);
    const startMs = scheduler.nowMs;
    const counts = [1 + random.int(MOST_REQUESTS), 1 + random.int(MOST_REQUESTS)];
    const statuses: (number | undefined)[] = [];
    for (const count of counts) {
      statuses.push(...(await Promise.all(Array.from({ length: count }, () => this.#request(key, gateway)))));
      await sleep(scheduler, Math.min(LONGEST_PAUSE_MS, random.exponential(5_000)));
    }
    if (upgradedSince(startMs)) return;
    const admitted = statuses.filter((status) => status === 200).length;
    const isExact = mustSucceed(startMs);
    const wasReset = failedBetween(startMs, scheduler.nowMs, NO_THREAD);
    if ((admitted > LIMIT && !wasReset) || (isExact && admitted !== Math.min(LIMIT, statuses.length)))
      broken("a local limit is exact", `${key}: ${admitted} of ${statuses.length} requests were admitted`);
  }

  /** Resolves with the status, or with undefined if the request failed. */
  async #request(key: string, gateway: { address: string; port: number }): Promise<number | undefined> {
    const { network, faults, scheduler, sent, answered } = this.#report;
    const side = await network.open(ADDRESS, gateway.address, gateway.port, faults, PATIENCE_MS);
    if (side === undefined) return undefined;
    this.#requests += 1;
    const nonce = `l0-${this.#requests}`;
    const path = pathOf({
      nonce,
      requestBytes: 0,
      responseBytes: 10,
      framing: "length",
      delayMs: 5,
      pieces: 1,
      gapMs: 0,
      closes: false,
      breaks: "never",
      isEarly: false,
    });
    sent(nonce, "GET");
    const headers = { host: LIMITED_HOST, "x-nonce": nonce, [LIMIT_KEY]: key };
    const response = await requestText(new Peer(side, scheduler, PATIENCE_MS), "GET", path, headers);
    side.close();
    if (typeof response === "string") return undefined;
    answered(nonce, response.status);
    return response.status;
  }
}
