/**
 * Counts wrong passwords and API keys per client address and user name, and per client address. Counters are slots of
 * a fixed table, found by keyed hashes, so that memory is bounded, nothing is evicted that an attacker could evict, and
 * threads can share the table without locks. A collision can only make a count too high.
 */
import { createHmac, randomBytes } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { GatewayError } from "../../core/errors.ts";
import type { CompileEnv } from "../../core/policy.ts";
import { clientAddress, type Source } from "../../core/source.ts";
import { clientNetwork } from "./password-checks.ts";

const MAX_FAILURES = 4_000;

export const failureLimitSchema = z
  .union([
    z.literal(false),
    z.strictObject({
      user: z
        .int()
        .min(1)
        .max(MAX_FAILURES)
        .default(20)
        .describe("Wrong credentials per minute of one user name (`basicAuth`) from one client address. Default: 20."),
      address: z
        .int()
        .min(1)
        .max(MAX_FAILURES)
        .default(200)
        .describe("Wrong credentials per minute from one client address, for all user names. Default: 200."),
      block: z
        .boolean()
        .default(false)
        .describe(
          "Whether correct credentials are rejected too while the limit is reached, which stops guessing but lets others lock users out who share an address. Default: false.",
        ),
    }),
  ])
  .optional()
  .describe("Answers wrong credentials beyond a limit with 429 instead of 401. `false` turns it off.");

export type FailureLimitConfig = z.output<typeof failureLimitSchema>;

const WINDOW_SECONDS = 60;
/** Two rows, so that a count is too high only if both of its slots are shared with others. */
const ROWS = 2;
const ROW_SLOTS = 1 << 17;
const SEED_BYTES = 16;
/** A slot has the second in which its window started, and a count. */
const COUNT_BITS = 12;
const COUNT_MASK = (1 << COUNT_BITS) - 1;
const SECONDS_MASK = 2 ** (32 - COUNT_BITS) - 1;

export const FAILURE_TABLE_BYTES = SEED_BYTES + ROWS * ROW_SLOTS * 4;

export interface FailureCount {
  readonly failures: number;
  readonly resetSeconds: number;
}

export class FailureTable {
  readonly #seed: Uint8Array;
  readonly #slots: Uint32Array;
  readonly #clock: Clock;

  constructor(clock: Clock, memory: { readonly buffer: SharedArrayBuffer; readonly isNew: boolean }) {
    this.#clock = clock;
    this.#seed = new Uint8Array(memory.buffer, 0, SEED_BYTES);
    this.#slots = new Uint32Array(memory.buffer, SEED_BYTES);
    if (memory.isNew) this.#seed.set(randomBytes(SEED_BYTES));
  }

  count(key: string): FailureCount {
    const now = this.#second();
    let found: FailureCount = { failures: Number.POSITIVE_INFINITY, resetSeconds: 0 };
    for (const slot of this.#slotsOf(key)) {
      const current = unpack(Atomics.load(this.#slots, slot), now);
      if (current.failures < found.failures) found = current;
    }
    return found;
  }

  add(key: string): void {
    const now = this.#second();
    for (const slot of this.#slotsOf(key)) {
      for (;;) {
        const before = Atomics.load(this.#slots, slot);
        const { failures } = unpack(before, now);
        const started = failures === 0 ? now : before >>> COUNT_BITS;
        const after = ((started << COUNT_BITS) | Math.min(failures + 1, COUNT_MASK)) >>> 0;
        if (Atomics.compareExchange(this.#slots, slot, before, after) === before) break;
      }
    }
  }

  #second(): number {
    // Threads have different monotonic clocks.
    return Math.floor(this.#clock.now() / 1000) & SECONDS_MASK;
  }

  #slotsOf(key: string): number[] {
    const digest = createHmac("sha256", this.#seed).update(key).digest();
    return Array.from({ length: ROWS }, (_, row) => row * ROW_SLOTS + (digest.readUInt32LE(row * 4) % ROW_SLOTS));
  }
}

function unpack(slot: number, now: number): FailureCount {
  const age = (now - (slot >>> COUNT_BITS)) & SECONDS_MASK;
  const failures = slot & COUNT_MASK;
  return failures === 0 || age >= WINDOW_SECONDS
    ? { failures: 0, resetSeconds: WINDOW_SECONDS }
    : { failures, resetSeconds: WINDOW_SECONDS - age };
}

export interface FailureLimit {
  /** Throws if the client may not be checked now. Called before a credential is checked. */
  check(source: Source, user: string): void;
  /** Counts a wrong credential, or throws if the limit is reached. */
  failed(source: Source, user: string): void;
}

const NO_LIMIT: FailureLimit = { check: () => undefined, failed: () => undefined };
const NAME = "failed credentials";

/**
 * Compiles `failureLimit`. `user` is empty for credentials without a user name, which are all counted as one user of
 * their address.
 */
export function compileFailureLimit(config: FailureLimitConfig, kind: string, env: CompileEnv): FailureLimit {
  if (config === false) return NO_LIMIT;
  const { user: perUser, address: perAddress, block } = config ?? { user: 20, address: 200, block: false };
  const { shared } = env;
  const table = env.acquire(
    NAME,
    "all",
    () => {
      const buffer = (): SharedArrayBuffer => new SharedArrayBuffer(FAILURE_TABLE_BYTES);
      return new FailureTable(env.clock, shared?.claim(NAME, FAILURE_TABLE_BYTES) ?? { buffer: buffer(), isNew: true });
    },
    () => shared?.release(NAME),
  );
  const scope = JSON.stringify([env.owner.prefix, env.scopeName, kind]);

  function reached(source: Source, user: string): { counts: readonly Count[]; full: Count | undefined } {
    // Behind a proxy that is not in `trustedProxies`, all clients have the address of the proxy.
    const isKnown = source.client !== undefined || source.isForwarded !== true;
    const address = isKnown ? clientNetwork(clientAddress(source)) : "";
    const counts: Count[] = [];
    if (isKnown || user !== "") counts.push({ key: `${scope} user ${JSON.stringify([address, user])}`, max: perUser });
    if (isKnown) counts.push({ key: `${scope} address ${address}`, max: perAddress });
    return { counts, full: counts.find(({ key, max }) => table.count(key).failures >= max) };
  }

  function reject({ key, max }: Count): never {
    throw new GatewayError("rate_limited", {
      detail: `more than ${max} wrong credentials in a minute`,
      headers: { "retry-after": String(table.count(key).resetSeconds) },
    });
  }

  return {
    check(source, user) {
      if (!block) return;
      const { full } = reached(source, user);
      if (full !== undefined) reject(full);
    },
    failed(source, user) {
      const { counts, full } = reached(source, user);
      if (full !== undefined) reject(full);
      for (const { key } of counts) table.add(key);
    },
  };
}

interface Count {
  readonly key: string;
  readonly max: number;
}
