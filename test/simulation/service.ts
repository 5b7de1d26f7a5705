/**
 * The pods of a Kubernetes Service, and clients that reach them through data planes. Each response names the
 * configuration of its request and response, and its pod, so that clients can check them.
 */
import { addressOf } from "./config.ts";
import type { DataPlane } from "./data-plane.ts";
import { requestText, type TextResponse } from "./http-request.ts";
import type { Faults, Network, Side } from "./network.ts";
import { Peer, readBody, readHead, sleep } from "./peer.ts";
import { OUTSIDE, type Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

export const SERVICE_HOST = "service.test";
export const POD_PORT = 8080;
export const PODS = 2;
/** The route sets this header of requests and responses to its version. */
export const VERSION_HEADER = "x-version";
/** Longer than every time limit of the gateway. */
const PATIENCE_MS = 200_000;
/** The average time between two connections of a client. */
const PAUSE_MS = 60_000;
/** Responses of the gateway if the network fails. */
const GATEWAY_ERRORS = new Set([408, 502, 503, 504]);

export function podAddress(pod: number): string {
  return addressOf(`pod ${pod}`);
}

export interface ServiceReport {
  readonly scheduler: Scheduler;
  readonly network: Network;
  readonly faults: Faults;
  /** No part of the network fails. */
  readonly isCalm: boolean;
  isOver(): boolean;
  sent(nonce: string, method: string): void;
  answered(nonce: string, status: number): void;
  arrived(nonce: string): void;
  broken(invariant: string, detail: string): void;
}

/** Responds with the nonce of the request, the version of the route, and the number of the pod. */
export function startPod(pod: number, random: Seeded, { scheduler, network, arrived }: ServiceReport): void {
  const serve = async (side: Side): Promise<void> => {
    const peer = new Peer(side, scheduler, PATIENCE_MS);
    for (;;) {
      const head = await readHead(peer);
      if (typeof head === "string" || (await readBody(peer, head, () => undefined, false)) !== undefined) break;
      const [, nonce = ""] = head.first.split("/");
      arrived(nonce);
      await sleep(scheduler, random.exponential(random.chance(0.1) ? 2_000 : 20));
      const body = `${nonce} ${head.headers.get(VERSION_HEADER)} ${pod}`;
      if ((await peer.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`)) !== undefined) break;
    }
    side.close();
  };
  network.listen(podAddress(pod), POD_PORT, { process: OUTSIDE, accept: (side) => void serve(side) });
}

/** Gets the version and the pod of a complete response. */
type Check = (version: number, pod: number) => void;

export class ServiceClient {
  readonly #name: string;
  readonly #address: string;
  readonly #random: Seeded;
  readonly #planes: readonly DataPlane[];
  readonly #expect: (plane: DataPlane) => Check;
  readonly #report: ServiceReport;
  #requests = 0;

  /** `expect` is called before each request. */
  constructor(
    index: number,
    random: Seeded,
    planes: readonly DataPlane[],
    expect: (plane: DataPlane) => Check,
    report: ServiceReport,
  ) {
    this.#name = `k${index}`;
    this.#address = `10.2.0.${1 + index}`;
    this.#random = random;
    this.#planes = planes;
    this.#expect = expect;
    this.#report = report;
  }

  async run(): Promise<void> {
    const { scheduler, isOver } = this.#report;
    for (;;) {
      await sleep(scheduler, this.#random.exponential(PAUSE_MS));
      if (isOver()) return;
      await this.#visit(this.#random.pick(this.#planes));
    }
  }

  async #visit(plane: DataPlane): Promise<void> {
    const { network, scheduler, faults, isCalm, broken } = this.#report;
    const openedMs = scheduler.nowMs;
    const side = await network.open(this.#address, plane.address, 80, faults, PATIENCE_MS);
    if (side === undefined) {
      if (isCalm && plane.servedSince(openedMs)) broken("data planes accept connections", `plane ${plane.index}`);
      return;
    }
    const peer = new Peer(side, scheduler, PATIENCE_MS);
    for (let left = 1 + this.#random.int(4); left > 0; left--) {
      if (!(await this.#request(plane, peer))) break;
      await sleep(scheduler, this.#random.exponential(300));
    }
    if (this.#random.chance(0.1)) side.abort();
    else side.close();
  }

  /** Resolves with true if the connection can be used again. */
  async #request(plane: DataPlane, peer: Peer): Promise<boolean> {
    const { scheduler, sent, answered, isCalm, broken } = this.#report;
    this.#requests += 1;
    const nonce = `${this.#name}-${this.#requests}`;
    const sentMs = scheduler.nowMs;
    const check = this.#expect(plane);
    const [method, body] = this.#random.chance(0.3) ? ["POST", nonce] : ["GET", ""];
    sent(nonce, method);
    const response = await requestText(peer, method, `/${nonce}/`, { host: SERVICE_HOST }, body);
    const status = typeof response === "string" ? undefined : response.status;
    if (status !== undefined) answered(nonce, status);
    const mustSucceed = isCalm && plane.servedSince(sentMs);
    if (status !== 200) {
      const isExpected = status === undefined || GATEWAY_ERRORS.has(status);
      if (!isExpected || mustSucceed)
        broken("data planes serve requests", `plane ${plane.index}: ${nonce} got ${status ?? response}`);
      return false;
    }
    const { headers, body: text } = response as TextResponse;
    const [ofBody, version, pod] = text.split(" ");
    if (ofBody !== nonce) broken("responses belong to their requests", `${nonce} got ${text}`);
    if (headers.get(VERSION_HEADER) !== version)
      broken("one configuration serves a request", `${nonce}: ${version}, then ${headers.get(VERSION_HEADER)}`);
    check(Number(version), Number(pod));
    return headers.get("connection") !== "close";
  }
}
