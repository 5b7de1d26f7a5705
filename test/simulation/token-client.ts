/**
 * A client of a route that requires a token. It sends valid tokens, expired and forged ones, tokens for another
 * audience, and tokens whose key was removed, and checks that only the valid ones pass.
 */
import { pathOf } from "./http-backend.ts";
import type { ClientReport } from "./http-client.ts";
import { requestText, type TextResponse } from "./http-request.ts";
import { AUDIENCE, type IdentityProvider, ISSUER, type Key, signToken } from "./identity-provider.ts";
import { START_MS } from "./isolate.ts";
import { Peer, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

export const TOKEN_HOST = "secure.test";
const PATIENCE_MS = 200_000;
/** Longer than the error of a gateway's clock and its leeway. */
const LIFE_SECONDS = 1_800;

interface Token {
  /** The key of a valid token. */
  readonly key: Key;
  readonly text: string;
  /** Undefined if the token is valid. */
  readonly problem: string | undefined;
}

export class TokenClient {
  readonly #name: string;
  readonly #address: string;
  readonly #random: Seeded;
  readonly #report: ClientReport;
  readonly #provider: IdentityProvider;
  #requests = 0;

  constructor(index: number, random: Seeded, report: ClientReport, provider: IdentityProvider) {
    this.#name = `t${index}`;
    this.#address = `10.4.${index >> 8}.${index & 255}`;
    this.#random = random;
    this.#report = report;
    this.#provider = provider;
  }

  async run(): Promise<void> {
    const { scheduler, pauseMs } = this.#report;
    while (!this.#report.isOver()) {
      await sleep(scheduler, this.#random.exponential(pauseMs / 2));
      if (this.#report.isOver()) return;
      await this.#visit();
    }
  }

  async #visit(): Promise<void> {
    const { network, gateways, faults, scheduler, broken } = this.#report;
    const token = this.#token();
    if (token === undefined) return;
    const gateway = this.#random.pick(gateways);
    const side = await network.open(this.#address, gateway.address, gateway.port, faults, PATIENCE_MS);
    if (side === undefined) return;
    this.#requests += 1;
    const nonce = `${this.#name}-${this.#requests}`;
    const path = pathOf({
      nonce,
      requestBytes: 0,
      responseBytes: 100,
      framing: "length",
      delayMs: 20,
      pieces: 1,
      gapMs: 0,
      closes: false,
      breaks: "never",
      isEarly: false,
    });
    const sentMs = scheduler.nowMs;
    this.#report.sent(nonce, "GET");
    const headers = { host: TOKEN_HOST, "x-nonce": nonce, authorization: `Bearer ${token.text}` };
    const response = await requestText(new Peer(side, scheduler, PATIENCE_MS), "GET", path, headers);
    side.close();
    if (typeof response === "string") return;
    this.#report.answered(nonce, response.status);
    if (token.problem === undefined) this.#checkValid(nonce, token.key, response, sentMs);
    else if (response.status === 200) broken("only valid tokens pass", `${nonce}: ${token.problem}`);
  }

  /** Gateways keep the keys of a provider that is unavailable. */
  #checkValid(nonce: string, { removedMs }: Key, { status, body }: TextResponse, sentMs: number): void {
    const { broken, scheduler, mustSucceed } = this.#report;
    const isRemoved = removedMs <= scheduler.nowMs;
    if (status === 401 && !isRemoved) broken("valid tokens pass", `${nonce}: ${body}`);
    if (status !== 200 && !isRemoved && mustSucceed(sentMs)) broken("requests succeed", `${nonce}: ${status} ${body}`);
  }

  #token(): Token | undefined {
    const random = this.#random;
    const key = this.#provider.currentKey();
    if (key === undefined) return undefined;
    const nowSeconds = Math.floor((START_MS + this.#report.scheduler.nowMs) / 1000);
    const claims = { iss: ISSUER, aud: AUDIENCE, sub: this.#name, exp: nowSeconds + LIFE_SECONDS };
    if (random.chance(0.6)) return { key, text: signToken(key, claims), problem: undefined };
    const removed = this.#provider.removedKey();
    switch (random.int(4)) {
      case 0:
        return { key, text: signToken(key, { ...claims, exp: nowSeconds - LIFE_SECONDS }), problem: "it has expired" };
      case 1:
        return { key, text: signToken(key, { ...claims, aud: "other" }), problem: "it has another audience" };
      case 2:
        return { key, text: signToken(this.#provider.forgedKey(key), claims), problem: "its key is forged" };
      default:
        return removed && { key, text: signToken(removed, claims), problem: "its key was removed" };
    }
  }
}
