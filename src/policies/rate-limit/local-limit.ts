/**
 * Implements one entry of `rateLimit.local` and the charges against its buckets. A reload that does not change the
 * entry keeps the buckets and their admin view.
 */
import { boundedKey } from "../../base/bounded-key.ts";
import type { Expression } from "../../cel/expression.ts";
import { keyDisplay, keyOf } from "../../cel/limit-key.ts";
import type { Exchange, LimitReading } from "../../core/exchange.ts";
import type { Charge, CompileEnv, LimitView } from "../../core/policy.ts";
import type { Counter } from "../../record/log/metrics.ts";
import { type BucketRule, BucketStore, type BucketView, MAX_BUCKETS, NO_SLOT, SHARED_SLOT } from "./bucket-store.ts";
import { createHandedBuckets } from "./handed-buckets.ts";
import { addReading, rateLimitedError } from "./limit-headers.ts";
import { type LocalLimitConfig, UNIT_MS } from "./schema.ts";

type Keys = readonly (string | undefined)[];

/** Records the units that one request took from one bucket. They are settled when the actual amount is known. */
interface Debit {
  readonly limit: LocalLimit;
  readonly key: string | undefined;
  readonly generation: number;
  readonly taken: number;
}

export function keysOf(limits: readonly LocalLimit[], exchange: Exchange): Keys {
  return limits.map((limit) => limit.keyOf(exchange));
}

export interface Amount {
  readonly charged: number;
  /** Only limits with `reserveOutput` are charged these units as well. */
  readonly reserved: number;
}

export const ONE_REQUEST: Amount = { charged: 1, reserved: 0 };

interface Rejection {
  readonly limit: LocalLimit;
  readonly reading: LimitReading;
  readonly detail: string;
}

/**
 * Checks that every limit has enough units left, without taking any. For the first limit that does not, it throws the
 * 429 error if the limit is enforced, and records the denial and returns false in shadow mode. All limits must have the
 * same mode.
 */
export function checkLimits(
  limits: readonly LocalLimit[],
  keys: Keys,
  amount: Amount,
  exchange: Exchange,
  nowMs: number,
): boolean {
  for (let i = 0; i < limits.length; i++) {
    const limit = limits[i] as LocalLimit;
    const key = keys[i];
    const rejection = limit.store.withLock(() => {
      const slot = limit.store.find(key, nowMs);
      const left = slot === NO_SLOT ? limit.store.rule.capacity : limit.store.remaining(slot);
      return left < requiredUnits(limit, amount) ? reject(limit, slot, key, amount, left, nowMs) : undefined;
    });
    if (rejection !== undefined) {
      throwOrRecord(exchange, rejection);
      return false;
    }
  }
  return true;
}

function requiredUnits(limit: LocalLimit, amount: Amount): number {
  return limit.reservesOutput ? unitsToTake(limit, amount) : 1;
}

function unitsToTake(limit: LocalLimit, amount: Amount): number {
  return limit.reservesOutput ? amount.charged + amount.reserved : amount.charged;
}

function rejectionReason(limit: LocalLimit, key: string | undefined, amount: Amount, left: number): string {
  if (!limit.reservesOutput || left < 1) return `the limit of ${limit.text} is exhausted for ${limit.show(key)}`;
  const needed = unitsToTake(limit, amount);
  const call = `the call may use ${needed} tokens (${amount.charged} estimated, ${amount.reserved} of output reserved)`;
  return needed > limit.store.rule.capacity
    ? `${call}, which never fits into the limit of ${limit.text}`
    : `${call}, and the limit of ${limit.text} has ${left} left for ${limit.show(key)}`;
}

export class LocalCharge implements Charge {
  declare confirm?: () => Promise<void>;
  readonly #limits: readonly LocalLimit[];
  readonly #keys: Keys;
  readonly #amount: Amount;
  readonly #exchange: Exchange;
  readonly #checkedMs: number;
  readonly #nowMs: () => number;
  #debits: readonly Debit[] = [];
  #reading: LimitReading | undefined = undefined;

  /** `checkedMs` is when `checkLimits` ran. The amount is taken in the same iteration of the event loop. */
  constructor(
    limits: readonly LocalLimit[],
    keys: Keys,
    amount: Amount,
    exchange: Exchange,
    checkedMs: number,
    nowMs: () => number,
  ) {
    this.#limits = limits;
    this.#keys = keys;
    this.#amount = amount;
    this.#exchange = exchange;
    this.#checkedMs = checkedMs;
    this.#nowMs = nowMs;
  }

  isFor(limits: readonly LocalLimit[]): boolean {
    return this.#limits === limits;
  }

  /**
   * Takes the amount, or as much as is left, from every bucket, and records the tightest reading for the response
   * headers. If a limit was exhausted since the check, it refunds everything and throws the 429 error. In shadow mode
   * it throws nothing and changes no response headers.
   */
  take(): undefined {
    const isShadow = this.#limits[0]?.isShadow === true;
    // A shadow limit in another scope would have rejected the request, and a rejected request is not charged.
    if (isShadow && this.#exchange.shadow.isFree) return;
    const nowMs = this.#checkedMs;
    const debits: Debit[] = [];
    let tightest: LimitReading | undefined;
    for (let i = 0; i < this.#limits.length; i++) {
      const limit = this.#limits[i] as LocalLimit;
      const key = this.#keys[i];
      const result = limit.store.withLock(() => this.#takeFrom(limit, key, debits, nowMs));
      if ("detail" in result) {
        for (const debit of debits) settle(debit, 0, nowMs);
        throwOrRecord(this.#exchange, result);
        return;
      }
      if (tightest === undefined || result.share < tightest.share) tightest = result;
    }
    this.#debits = debits;
    if (isShadow) {
      this.#exchange.shadow.charges ??= [];
      this.#exchange.shadow.charges.push(this);
      return;
    }
    this.#reading = tightest;
    if (tightest !== undefined) addReading(this.#exchange, tightest);
  }

  /** Takes from one bucket and appends to `debits`. The caller must hold the store's lock. */
  #takeFrom(limit: LocalLimit, key: string | undefined, debits: Debit[], nowMs: number): LimitReading | Rejection {
    const { store } = limit;
    const slot = store.open(key, nowMs);
    const left = store.remaining(slot);
    if (left < requiredUnits(limit, this.#amount)) return reject(limit, slot, key, this.#amount, left, nowMs);
    const taken = store.take(slot, unitsToTake(limit, this.#amount));
    debits.push({ limit, key, generation: store.generation(slot), taken });
    return readBucket(limit, slot, nowMs);
  }

  giveBack(): undefined {
    this.settle(0);
    this.#debits = [];
    if (this.#reading === undefined) return;
    const { limits } = this.#exchange;
    // The headers must not show a charge that was refunded. The reading of a rejection stays.
    const others = limits.readings?.filter((reading) => reading !== this.#reading);
    limits.readings = others?.length === 0 ? undefined : others;
  }

  /**
   * Returns the estimate if it changed since admission. The size of an upload is available only after the upload has
   * been sent.
   */
  recount(estimate: number): number | undefined {
    return estimate === this.#amount.charged ? undefined : estimate;
  }

  settle(amount: number): void {
    const nowMs = this.#nowMs();
    for (const debit of this.#debits) settle(debit, amount, nowMs);
  }
}

/** Charges the actual amount in the current window, even if the estimate was charged in an earlier window. */
function settle(debit: Debit, amount: number, nowMs: number): void {
  const { store } = debit.limit;
  store.withLock(() => {
    const slot = store.open(debit.key, nowMs);
    // If the bucket was evicted in the meantime, the new bucket does not include the debit and is charged in full.
    const isSame = store.generation(slot) === debit.generation;
    store.take(slot, isSame ? amount - debit.taken : amount);
  });
}

/** Counts the rejection. The caller must hold the store's lock. */
function reject(
  limit: LocalLimit,
  slot: number,
  key: string | undefined,
  amount: Amount,
  left: number,
  nowMs: number,
): Rejection {
  limit.countRejection();
  return { limit, reading: readBucket(limit, slot, nowMs), detail: rejectionReason(limit, key, amount, left) };
}

function throwOrRecord(exchange: Exchange, { limit, reading, detail }: Rejection): void {
  if (!limit.isShadow) throw rateLimitedError(exchange, reading, { detail });
  exchange.deniedInShadow("rateLimit", detail, { rule: limit.rule });
}

const MAX_BUCKETS_SHOWN = 20;
const MAX_BUCKETS_FOUND = 100;

export interface LocalLimit {
  readonly type: "requests" | "tokens";
  readonly isShadow: boolean;
  readonly store: BucketStore;
  /** True if the key reads the body, so the limit is checked after the body is parsed. */
  readonly needsBody: boolean;
  readonly readsModel: boolean;
  readonly reservesOutput: boolean;
  readonly capacityText: string;
  /** The text appears in error details, for example `3 requests per second`. */
  readonly text: string;
  /** Contains `text` and the key expression, for the shadow report. */
  readonly rule: string;
  keyOf(exchange: Exchange): string | undefined;
  show(key: string | undefined): string;
  countRejection(): void;
}

/** A reload keeps this state while the entry is unchanged. */
interface LimitState {
  readonly store: BucketStore;
  readonly rejections: Counter;
  show(key: string | undefined): string;
  unregister(): void;
}

export function compileLocalLimit(config: LocalLimitConfig, resourceKey: string, env: CompileEnv): LocalLimit {
  const type = config.tokens === undefined ? "requests" : "tokens";
  const key = compileKey(config, type, env);
  const state = env.acquire(
    resourceKey,
    config,
    () => open(config, type, key, `${resourceKey} ${JSON.stringify(config)}`, env),
    (closing) => closing.unregister(),
  );
  const burst = config.burst ? ` (burst ${config.burst})` : "";
  const count = config.requests ?? config.tokens;
  const counted = `${count} ${count === 1 ? type.slice(0, -1) : type}`;
  const text = `${counted} per ${config.unit.toLowerCase().slice(0, -1)}${burst}`;
  return {
    type,
    isShadow: config.mode === "shadow",
    store: state.store,
    needsBody: type === "requests" && (key?.attributes.has("mcp") === true || key?.attributes.has("a2a") === true),
    readsModel: key?.attributes.has("llm") === true,
    reservesOutput: config.reserveOutput === true,
    capacityText: String(state.store.rule.capacity),
    text,
    rule: config.key === undefined ? text : `${text} for each ${config.key}`,
    keyOf: key === undefined ? () => undefined : (exchange) => keyOf(key, exchange.celAttributes),
    show: state.show,
    countRejection() {
      // The shadow report counts the rejections of shadow limits.
      if (config.mode === "shadow") return;
      state.store.countRejection();
      state.rejections.add();
    },
  };
}

/** Returns the state of a bucket for the response headers. NO_SLOT means a full bucket. */
export function readBucket(limit: LocalLimit, slot: number, nowMs: number): LimitReading {
  const { capacity } = limit.store.rule;
  const remaining = slot === NO_SLOT ? capacity : limit.store.remaining(slot);
  return {
    rule: limit.text,
    limit: limit.capacityText,
    remaining,
    resetSeconds: limit.store.resetSeconds(slot === NO_SLOT ? SHARED_SLOT : slot, nowMs),
    share: remaining / capacity,
  };
}

function toBucketRule(config: LocalLimitConfig): BucketRule {
  const refill = (config.requests ?? config.tokens) as number;
  return { capacity: refill + (config.burst ?? 0), refill, windowMs: UNIT_MS[config.unit] };
}

function compileKey(config: LocalLimitConfig, type: LocalLimit["type"], env: CompileEnv): Expression | undefined {
  if (config.key === undefined) return undefined;
  const expression = env.cel(config.key);
  if (type === "requests" && expression.attributes.has("llm")) {
    env.warn(
      `rateLimit.local: the key \`${config.key}\` of a request limit cannot read llm.*: all requests share one bucket. Use a token limit.`,
    );
    return undefined;
  }
  return expression;
}

function open(
  config: LocalLimitConfig,
  type: LocalLimit["type"],
  key: Expression | undefined,
  name: string,
  env: CompileEnv,
): LimitState {
  const evictions = env.metrics
    .counter("gateway_rate_limit_evictions_total", "Buckets evicted for another key.", ["owner"])
    .labels(env.scopeName);
  const maxKeyed = key === undefined ? 0 : MAX_BUCKETS;
  const { shared } = env;
  const memory = shared && { ...shared.claim(name, BucketStore.sharedBytes(maxKeyed)), thread: shared.thread };
  const store = new BucketStore(toBucketRule(config), maxKeyed, () => evictions.add(), memory);
  shared?.onDeath(name, (thread) => store.repairAfter(thread));
  const display = key === undefined ? undefined : keyDisplay(key);
  const show = (shown: string | undefined): string =>
    display === undefined ? "(all)" : shown === undefined ? "(no key)" : display(shown);
  const rejections = env.metrics
    .counter("gateway_rate_limit_refused_total", "Requests refused by a limit.", ["owner", "type"])
    .labels(env.scopeName, type);
  const state: LimitState = { store, rejections, show, unregister: () => undefined };
  const handed = createHandedBuckets(name, store, env.clock);
  const unregister = env.limits.register((wanted) => [createView(state, config, env, wanted)], handed);
  state.unregister = () => {
    unregister();
    shared?.release(name);
  };
  return state;
}

/**
 * Without `wanted`, lists buckets in use. With `wanted`, lists buckets with a matching key, including full buckets. The
 * emptiest buckets come first, up to a limit.
 */
function createView(
  state: LimitState,
  config: LocalLimitConfig,
  env: CompileEnv,
  wanted: string | undefined,
): LimitView {
  const { capacity } = state.store.rule;
  const whole = wanted === undefined ? undefined : boundedKey(wanted);
  const listed: BucketView[] = [];
  let bucketsInUse = 0;
  for (const bucket of state.store.views(Math.floor(env.clock.monotonicMs()))) {
    const isInUse = bucket.remaining < capacity;
    if (isInUse) bucketsInUse += 1;
    if (wanted === undefined ? isInUse : bucket.key === whole || state.show(bucket.key).includes(wanted))
      listed.push(bucket);
  }
  const emptiest = listed.sort((a, b) => a.remaining - b.remaining);
  return {
    owner: env.scopeName,
    rule: config,
    bucketsInUse,
    refusals: state.store.rejections,
    buckets: emptiest
      .slice(0, wanted === undefined ? MAX_BUCKETS_SHOWN : MAX_BUCKETS_FOUND)
      .map(({ key, remaining, resetSeconds }) => ({ key: state.show(key), remaining, limit: capacity, resetSeconds })),
  };
}
