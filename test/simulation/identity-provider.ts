/**
 * An identity provider that publishes its keys and replaces them: a key is published, signs tokens some time later, and
 * is removed. The provider may be unavailable for a while.
 */
import crypto from "node:crypto";
import type { BackendReport } from "./http-backend.ts";
import type { Side } from "./network.ts";
import { Peer, readHead, sleep } from "./peer.ts";
import { OUTSIDE } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

export const ISSUER = "idp.simulation";
export const AUDIENCE = "api";
const PATIENCE_MS = 300_000;
/** Average time between two new keys. */
const ROTATE_MS = 15 * 60_000;
/** Gateways fetch the keys again after this time, which is the shortest that they accept. */
const MAX_AGE_SECONDS = 60;
/** A gateway has a new key, and no longer a removed one, this long after the provider was last unavailable. */
const SETTLED_MS = 4 * MAX_AGE_SECONDS * 1000;
/** The begin of an Ed25519 private key in PKCS #8, before its 32 bytes. */
const PKCS8_START = Buffer.from("302e020100300506032b657004220420", "hex");

export interface Key {
  readonly id: string;
  readonly privateKey: crypto.KeyObject;
  readonly publishedMs: number;
  removedMs: number;
}

export class IdentityProvider {
  readonly #report: BackendReport;
  readonly #random: Seeded;
  readonly #keys: Key[] = [];
  readonly #open = new Set<Side>();
  #isAway = false;
  #backMs = Number.NEGATIVE_INFINITY;

  constructor(address: string, random: Seeded, report: BackendReport) {
    this.#report = report;
    this.#random = random;
    report.network.listen(address, 80, { process: OUTSIDE, accept: (side) => void this.#serve(side) });
    this.#add(Number.NEGATIVE_INFINITY);
  }

  close(): void {
    for (const side of this.#open) side.close();
  }

  /** Replaces keys until the simulation is over. */
  async run(isOver: () => boolean): Promise<void> {
    const { scheduler, isCalm } = this.#report;
    while (!isOver()) {
      await sleep(scheduler, this.#random.exponential(ROTATE_MS));
      this.#isAway = !isCalm && this.#random.chance(0.3);
      this.#add(scheduler.nowMs);
      await sleep(scheduler, this.#random.exponential(SETTLED_MS));
      const [oldest] = this.#published();
      if (oldest && this.#published().length > 1) oldest.removedMs = scheduler.nowMs;
      if (this.#isAway) this.#backMs = scheduler.nowMs;
      this.#isAway = false;
    }
  }

  /** True if every gateway has fetched the keys again since `ms`. */
  isKnownSince(ms: number): boolean {
    return !this.#isAway && this.#report.scheduler.nowMs - Math.max(ms, this.#backMs) > SETTLED_MS;
  }

  /** A key that gateways accept, if there is one. */
  currentKey(): Key | undefined {
    return this.#published().findLast(({ publishedMs }) => this.isKnownSince(publishedMs));
  }

  /** A key that gateways do not accept any longer, if there is one. */
  removedKey(): Key | undefined {
    return this.#keys.findLast(({ removedMs }) => this.isKnownSince(removedMs));
  }

  /** A key with the ID of another one, which the provider has never published. */
  forgedKey({ id }: Key): Key {
    return { ...this.#create("forged", 0), id };
  }

  #published(): Key[] {
    return this.#keys.filter(({ removedMs }) => removedMs === Number.POSITIVE_INFINITY);
  }

  #add(publishedMs: number): void {
    this.#keys.push(this.#create(`key-${this.#keys.length}`, publishedMs));
  }

  #create(id: string, publishedMs: number): Key {
    const bytes = crypto.createHash("sha256").update(id).digest();
    const key = Buffer.concat([PKCS8_START, bytes]);
    const privateKey = crypto.createPrivateKey({ key, format: "der", type: "pkcs8" });
    return { id, privateKey, publishedMs, removedMs: Number.POSITIVE_INFINITY };
  }

  async #serve(side: Side): Promise<void> {
    if (this.#isAway) {
      side.abort();
      return;
    }
    const peer = new Peer(side, this.#report.scheduler, PATIENCE_MS);
    this.#open.add(side);
    for (;;) {
      const head = await readHead(peer);
      if (typeof head === "string" || this.#isAway) break;
      const keys = this.#published().map(({ id, privateKey }) => {
        const { kty, crv, x } = crypto.createPublicKey(privateKey as unknown as string).export({ format: "jwk" });
        return { kty, crv, x, kid: id, alg: "EdDSA", use: "sig" };
      });
      const body = JSON.stringify({ keys });
      const headers = `content-type: application/json\r\ncache-control: max-age=${MAX_AGE_SECONDS}\r\n`;
      await peer.write(`HTTP/1.1 200 OK\r\n${headers}content-length: ${body.length}\r\n\r\n${body}`);
    }
    this.#open.delete(side);
    side.close();
  }
}

export function signToken({ id, privateKey }: Key, claims: object): string {
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${encode({ alg: "EdDSA", typ: "JWT", kid: id })}.${encode(claims)}`;
  return `${signed}.${crypto.sign(null, Buffer.from(signed), privateKey).toString("base64url")}`;
}
