/**
 * One entry of `local[]` with its living buckets. The buckets outlive a reload that does not change the entry; the
 * compiled key does not. The view for the admin interface belongs to the buckets.
 */
import type { Expression } from "../../cel/expression.ts";
import { boundedKey, keyDisplay, keyOf } from "../../cel/limit-key.ts";
import type { Exchange, LimitReading } from "../../core/exchange.ts";
import type { CompileEnv, LimitView } from "../../core/policy.ts";
import type { Counter } from "../../observe/log/metrics.ts";
import type { BucketRule } from "./bucket.ts";
import { BucketStore, type BucketView, MAX_BUCKETS, SHARED_SLOT } from "./bucket-store.ts";
import { createHandedBuckets } from "./handed-buckets.ts";
import { type LocalLimitConfig, UNIT_MS } from "./schema.ts";
import { NO_SLOT } from "./slot-lists.ts";

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
  const living = env.keep(
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
