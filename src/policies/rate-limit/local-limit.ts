/**
 * One entry of `local[]` with its living buckets. The buckets outlive a reload that does not change the entry; the
 * compiled key does not. The view for the admin interface belongs to the buckets.
 */
import type { Expression } from "../../cel/expression.ts";
import { boundedKey, keyDisplay, keyOf } from "../../cel/limit-key.ts";
import type { Exchange, LimitReading } from "../../core/exchange.ts";
import type { Charge, CompileEnv, LimitView } from "../../core/policy.ts";
import type { Counter } from "../../observe/log/metrics.ts";
import { type BucketRule, BucketStore, type BucketView, MAX_BUCKETS, NO_SLOT, SHARED_SLOT } from "./bucket-store.ts";
import { createHandedBuckets } from "./handed-buckets.ts";
import { addReading, refusal } from "./readings.ts";
import { type LocalLimitConfig, UNIT_MS } from "./schema.ts";

type Keys = readonly (string | undefined)[];

/** What one request took from one bucket, to be settled when the real amount is known. */
interface Debit {
  readonly limit: LocalLimit;
  readonly key: string | undefined;
  readonly generation: number;
  readonly taken: number;
}

export function keysOf(limits: readonly LocalLimit[], exchange: Exchange): Keys {
  return limits.map((limit) => limit.keyOf(exchange));
}

/** What a request takes: from every bucket, and besides from those that reserve its output. */
export interface Amount {
  readonly charged: number;
  readonly reserved: number;
}

export const ONE: Amount = { charged: 1, reserved: 0 };

/** Why a limit refuses, and how it stands. */
interface Refused {
  readonly limit: LocalLimit;
  readonly reading: LimitReading;
  readonly detail: string;
}

/**
 * False if an entry in shadow mode has nothing left, or not enough for what it must hold whole; throws the refusal of the
 * first that is enforced. The entries given are all of one mode.
 */
export function ask(
  limits: readonly LocalLimit[],
  keys: Keys,
  amount: Amount,
  exchange: Exchange,
  nowMs: number,
): boolean {
  for (let i = 0; i < limits.length; i++) {
    const limit = limits[i] as LocalLimit;
    const { store } = limit;
    store.lock();
    const slot = store.find(keys[i], nowMs);
    const left = slot === NO_SLOT ? store.rule.capacity : store.remaining(slot);
    if (left < neededBy(limit, amount)) {
      tell(exchange, refused(limit, slot, keys[i], amount, left, nowMs));
      return false;
    }
    store.unlock();
  }
  return true;
}

/** What must be left for the request to be admitted. */
function neededBy(limit: LocalLimit, amount: Amount): number {
  return limit.reservesOutput ? takenBy(limit, amount) : 1;
}

function takenBy(limit: LocalLimit, amount: Amount): number {
  return limit.reservesOutput ? amount.charged + amount.reserved : amount.charged;
}

function reasonOf(limit: LocalLimit, key: string | undefined, amount: Amount, left: number): string {
  if (!limit.reservesOutput || left < 1) return `the limit of ${limit.text} is used up for ${limit.show(key)}`;
  const needed = takenBy(limit, amount);
  const asked = `the call may use ${needed} tokens (${amount.charged} estimated, ${amount.reserved} of output reserved)`;
  return needed > limit.store.rule.capacity
    ? `${asked}, which never fits into the limit of ${limit.text}`
    : `${asked}, and the limit of ${limit.text} has ${left} left for ${limit.show(key)}`;
}

/** What one request takes from the buckets of some entries. */
export class LocalCharge implements Charge {
  declare confirm?: () => Promise<void>;
  readonly #limits: readonly LocalLimit[];
  readonly #keys: Keys;
  readonly #amount: Amount;
  readonly #exchange: Exchange;
  readonly #nowMs: () => number;
  #debits: readonly Debit[] = [];
  #reading: LimitReading | undefined = undefined;

  constructor(limits: readonly LocalLimit[], keys: Keys, amount: Amount, exchange: Exchange, nowMs: () => number) {
    this.#limits = limits;
    this.#keys = keys;
    this.#amount = amount;
    this.#exchange = exchange;
    this.#nowMs = nowMs;
  }

  /** Whether it was made for this list of limits. */
  isOf(limits: readonly LocalLimit[]): boolean {
    return this.#limits === limits;
  }

  /**
   * Takes the amount from every bucket, or what is left of it, and notes the tightest for the response's headers. Throws the
   * refusal of a limit of which another thread took the last since it was asked; then nothing is taken. In shadow mode
   * nothing is thrown or noted for the client.
   */
  take(): undefined {
    const isShadow = this.#limits[0]?.isShadow === true;
    // Another scope refuses it in shadow mode: a refused request costs nothing.
    if (isShadow && this.#exchange.shadow.isFree) return;
    const nowMs = this.#nowMs();
    const debits: Debit[] = [];
    let tightest: LimitReading | undefined;
    for (let i = 0; i < this.#limits.length; i++) {
      const limit = this.#limits[i] as LocalLimit;
      const key = this.#keys[i];
      const { store } = limit;
      store.lock();
      const slot = store.open(key, nowMs);
      const left = store.remaining(slot);
      if (left < neededBy(limit, this.#amount)) {
        const why = refused(limit, slot, key, this.#amount, left, nowMs);
        for (const debit of debits) settle(debit, 0, nowMs);
        tell(this.#exchange, why);
        return;
      }
      const taken = store.take(slot, takenBy(limit, this.#amount));
      debits.push({ limit, key, generation: store.generation(slot), taken });
      const reading = readingOf(limit, slot, nowMs);
      store.unlock();
      if (tightest === undefined || reading.share < tightest.share) tightest = reading;
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

  giveBack(): undefined {
    this.settle(0);
    this.#debits = [];
    if (this.#reading === undefined) return;
    const { limits } = this.#exchange;
    // The headers must not speak of a charge that there is not; a refusal's own reading stays.
    const others = limits.readings?.filter((reading) => reading !== this.#reading);
    limits.readings = others?.length === 0 ? undefined : others;
  }

  /** The estimate, if it is another by now: of an upload it is known when it went through. */
  recount(estimate: number): number | undefined {
    return estimate === this.#amount.charged ? undefined : estimate;
  }

  /** Replaces what was taken by the real amount. */
  settle(amount: number): void {
    const nowMs = this.#nowMs();
    for (const debit of this.#debits) settle(debit, amount, nowMs);
  }
}

/** Replaces what was taken by the real amount, in the bucket as it is now. */
function settle(debit: Debit, amount: number, nowMs: number): void {
  const { store } = debit.limit;
  store.lock();
  const slot = store.open(debit.key, nowMs);
  // A bucket that was evicted meanwhile has forgotten the debit: its successor is charged with all of it.
  const isSame = store.generation(slot) === debit.generation;
  store.take(slot, isSame ? amount - debit.taken : amount);
  store.unlock();
}

/** Counts the refusal and unlocks the store. */
function refused(
  limit: LocalLimit,
  slot: number,
  key: string | undefined,
  amount: Amount,
  left: number,
  nowMs: number,
): Refused {
  limit.refused();
  const reading = readingOf(limit, slot, nowMs);
  limit.store.unlock();
  return { limit, reading, detail: reasonOf(limit, key, amount, left) };
}

/** Throws the refusal, or notes what it would be. */
function tell(exchange: Exchange, { limit, reading, detail }: Refused): void {
  if (!limit.isShadow) throw refusal(exchange, reading, { detail });
  exchange.deniedInShadow("rateLimit", detail, { rule: limit.rule });
}

/** A list that a person can read; the counts tell the rest. */
const MAX_SHOWN = 20;
/** Of those that a search found. */
const MAX_FOUND = 100;

export interface LocalLimit {
  readonly type: "requests" | "tokens";
  /** It counts and refuses nothing. */
  readonly isShadow: boolean;
  readonly store: BucketStore;
  /** Its key reads what the body says: it is asked when the body was read. */
  readonly needsBody: boolean;
  /** Its key reads the model. */
  readonly readsModel: boolean;
  /** A call must fit whole, with the output that it may have. */
  readonly reservesOutput: boolean;
  /** The value of `x-ratelimit-limit`. */
  readonly capacityText: string;
  /** `3 requests per second`, for refusals. */
  readonly text: string;
  /** The same with its key, for the shadow report. */
  readonly rule: string;
  keyOf(exchange: Exchange): string | undefined;
  show(key: string | undefined): string;
  refused(): void;
}

/** What a reload hands over. */
interface Living {
  readonly store: BucketStore;
  readonly refusals: Counter;
  show(key: string | undefined): string;
  unregister(): void;
}

export function compileLocalLimit(config: LocalLimitConfig, keepKey: string, env: CompileEnv): LocalLimit {
  const type = config.tokens === undefined ? "requests" : "tokens";
  const key = compileKey(config, type, env);
  const living = env.acquire(
    keepKey,
    config,
    () => open(config, type, key, `${keepKey} ${JSON.stringify(config)}`, env),
    (closing) => closing.unregister(),
  );
  const burst = config.burst ? ` (burst ${config.burst})` : "";
  const text = `${config.requests ?? config.tokens} ${type} per ${config.unit.toLowerCase().slice(0, -1)}${burst}`;
  return {
    type,
    isShadow: config.mode === "shadow",
    store: living.store,
    needsBody: type === "requests" && (key?.attributes.has("mcp") === true || key?.attributes.has("a2a") === true),
    readsModel: key?.attributes.has("llm") === true,
    reservesOutput: config.reserveOutput === true,
    capacityText: String(living.store.rule.capacity),
    text,
    rule: config.key === undefined ? text : `${text} for each ${config.key}`,
    keyOf: key === undefined ? () => undefined : (exchange) => keyOf(key, exchange.attributes),
    show: living.show,
    refused() {
      // Counted in the shadow report instead.
      if (config.mode === "shadow") return;
      living.store.refused();
      living.refusals.add();
    },
  };
}

/** The state of a bucket as clients see it; a key without a bucket has a full one. */
export function readingOf(limit: LocalLimit, slot: number, nowMs: number): LimitReading {
  const { capacity } = limit.store.rule;
  const remaining = slot === NO_SLOT ? capacity : limit.store.remaining(slot);
  return {
    limit: limit.capacityText,
    remaining,
    resetSeconds: limit.store.resetSeconds(slot === NO_SLOT ? SHARED_SLOT : slot, nowMs),
    share: remaining / capacity,
  };
}

function ruleOf(config: LocalLimitConfig): BucketRule {
  const refill = (config.requests ?? config.tokens) as number;
  return { capacity: refill + (config.burst ?? 0), refill, windowMs: UNIT_MS[config.unit] };
}

function compileKey(config: LocalLimitConfig, type: LocalLimit["type"], env: CompileEnv): Expression | undefined {
  if (config.key === undefined) return undefined;
  const expression = env.cel(config.key);
  if (type === "requests" && expression.attributes.has("llm")) {
    // Request limits are checked before the body is parsed (spec 8).
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
): Living {
  const evictions = env.metrics
    .counter("gateway_rate_limit_evictions_total", "Buckets evicted for another key.", ["owner"])
    .labels(env.owner);
  const maxKeyed = key === undefined ? 0 : MAX_BUCKETS;
  const { shared } = env;
  const memory = shared && { ...shared.claim(name, BucketStore.sharedBytes(maxKeyed)), thread: shared.thread };
  const store = new BucketStore(ruleOf(config), maxKeyed, () => evictions.add(), memory);
  shared?.onDeath(name, (thread) => store.repairAfter(thread));
  const display = key === undefined ? undefined : keyDisplay(key);
  const show = (shown: string | undefined): string =>
    display === undefined ? "(all)" : shown === undefined ? "(no key)" : display(shown);
  const refusals = env.metrics
    .counter("gateway_rate_limit_refused_total", "Requests refused by a limit.", ["owner", "type"])
    .labels(env.owner, type);
  const living: Living = { store, refusals, show, unregister: () => undefined };
  const handed = createHandedBuckets(name, store, env.clock);
  const unregister = env.limits.register((wanted) => [viewOf(living, config, env, wanted)], handed);
  living.unregister = () => {
    unregister();
    shared?.release(name);
  };
  return living;
}

/** Without a key the buckets that are in use, the emptiest first; with one all that have it, full or not. */
function viewOf(living: Living, config: LocalLimitConfig, env: CompileEnv, wanted: string | undefined): LimitView {
  const { capacity } = living.store.rule;
  const whole = wanted === undefined ? undefined : boundedKey(wanted);
  const listed: BucketView[] = [];
  let bucketsInUse = 0;
  for (const bucket of living.store.views(Math.floor(env.clock.monotonicMs()))) {
    const isInUse = bucket.remaining < capacity;
    if (isInUse) bucketsInUse += 1;
    if (wanted === undefined ? isInUse : bucket.key === whole || living.show(bucket.key).includes(wanted))
      listed.push(bucket);
  }
  const emptiest = listed.sort((one, other) => one.remaining - other.remaining);
  return {
    owner: env.owner,
    rule: config,
    bucketsInUse,
    refusals: living.store.refusals,
    buckets: emptiest
      .slice(0, wanted === undefined ? MAX_SHOWN : MAX_FOUND)
      .map(({ key, remaining, resetSeconds }) => ({ key: living.show(key), remaining, limit: capacity, resetSeconds })),
  };
}
