/**
 * Budgets: whatever numbers an answer claims, a bucket holds between nothing and its capacity, and it holds what a plain
 * map of buckets would hold. A flood of keys never gives an exhausted bucket back while another can go.
 */

import { readUsage, usedTokens } from "../../../src/llm/usage/usage.ts";
import { advanced, type Bucket, BucketStore, debited, NO_SLOT } from "../../../src/policies/rate-limit/bucket-store.ts";
import type { Random } from "../../support/random.ts";
import { isRecord, parsed } from "../json.ts";
import { type Case, defineTarget, expect, expectSame } from "../target.ts";

type Step = { readonly waitMs: number; readonly key: string; readonly amount: number };
type Input = {
  readonly limit: number;
  readonly burst: number;
  readonly windowMs: number;
  readonly room: number;
  readonly usage: string;
  readonly steps: readonly Step[];
};

function whole(value: Case, least: number, most: number): number {
  const number = typeof value === "number" && Number.isFinite(value) ? Math.floor(Math.abs(value)) : least;
  return Math.max(least, Math.min(most, number));
}

function checkUsage(text: string): string {
  const value = parsed(text)?.value;
  const usage = readUsage(isRecord(value) ? (value.usage ?? value) : value);
  if (usage === undefined) return "no usage";
  for (const [name, count] of Object.entries(usage))
    expect(Number.isSafeInteger(count) && count >= 0, `${name} is ${String(count)}`);
  expect(usage.totalTokens >= usage.inputTokens + usage.outputTokens, "a total smaller than its parts");
  const used = usedTokens({ ...usage } as never, { end: "complete", status: 200 } as never);
  expect(used !== undefined && Number.isSafeInteger(used) && used >= 0, `used ${String(used)}`);
  return Object.keys(usage).length.toString();
}

function checkBuckets(input: Input): string {
  const refill = whole(input.limit, 1, 1_000);
  const rule = { capacity: refill + whole(input.burst, 0, 1_000), refill, windowMs: whole(input.windowMs, 1, 100_000) };
  const room = whole(input.room, 1, 8);
  let evictions = 0;
  const store = new BucketStore(rule, room, () => {
    evictions += 1;
  });
  const model = new Map<string, Bucket>();
  let nowMs = 1_000;
  for (const step of input.steps) {
    nowMs += whole(step.waitMs, 0, 1_000_000);
    const amount = Number.isFinite(step.amount) ? Math.trunc(Math.max(-1e9, Math.min(1e9, step.amount))) : 0;
    const key = step.key === "" ? undefined : step.key;
    const evictedBefore = evictions;
    const isNew = key !== undefined && store.find(key, nowMs) === NO_SLOT;
    const slot = store.open(key, nowMs);
    if (isNew) model.delete(step.key);
    const before = advanced(rule, model.get(step.key) ?? { remaining: rule.capacity, windowStartMs: nowMs }, nowMs);
    expectSame(store.remaining(slot), before.remaining, "what is left");
    const taken = store.take(slot, amount);
    const after = debited(rule, before.remaining, amount);
    expectSame([store.remaining(slot), taken], [after, before.remaining - after], "after taking");
    model.set(step.key, { ...before, remaining: after });
    expect(store.remaining(slot) >= 0 && store.remaining(slot) <= rule.capacity, "a bucket out of bounds");
    expect(store.resetSeconds(slot, nowMs) >= 1, "no time until the reset");
    expect(store.count <= room, "more buckets than there is room");
    if (evictions > evictedBefore) forgetEvicted(store, model, nowMs);
  }
  return `${store.count} ${evictions}`;
}

/** Windows that end within this share of a window are listed in no order: which of them is full again is known that well. */
const TICKS = 64;

/** The one that went must not be exhausted while another is not, or was not until just now. */
function forgetEvicted(store: BucketStore, model: Map<string, Bucket>, nowMs: number): void {
  const held = new Set([...store.views(nowMs)].map(({ key }) => key));
  for (const [key, bucket] of model) {
    if (key === "" || held.has(key)) continue;
    model.delete(key);
    if (advanced(store.rule, bucket, nowMs).remaining > 0) continue;
    for (const [other, one] of model) {
      if (other === "" || !held.has(other) || one.windowStartMs === nowMs) continue;
      const { remaining, windowStartMs } = advanced(store.rule, one, nowMs);
      const isJustFilled = nowMs - windowStartMs <= store.rule.windowMs / TICKS;
      expect(remaining === 0 || isJustFilled, "an exhausted bucket went before another");
    }
  }
}

const COUNTS = [
  "0",
  "1",
  "-1",
  "1.5",
  "1e9",
  "1e10",
  "1e999",
  "9007199254740993",
  "null",
  '"5"',
  "true",
  "1e-9",
  "-0",
  "100",
];
const NAMES = [
  "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
  "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount", "cachedContentTokenCount", "inputTokens", "outputTokens",
  "cacheReadInputTokens", "inputTokenCount", "outputTokenCount", "prompt_cache_hit_tokens", "toolUsePromptTokenCount",
]; // biome-ignore format: a table

function generate(random: Random): Input {
  const counts = random.list(5, () => `"${random.pick(NAMES)}":${random.pick(COUNTS)}`);
  counts.push(`"completion_tokens_details":{"reasoning_tokens":${random.pick(COUNTS)}}`);
  return {
    limit: 1 + random.int(20),
    burst: random.int(10),
    windowMs: random.pick([1, 10, 1_000, 60_000]),
    room: 1 + random.int(5),
    usage: `{${counts.join(",")}}`,
    steps: random.list(12, () => ({
      waitMs: random.pick([0, 0, 0, 1, 5, 999, 1_000, 60_000]),
      key: random.pick(["", "a", "b", "c", "d", "e", "f", "g"]),
      amount: random.pick([0, 1, 2, 5, 30, -1, -5, 1e9]),
    })),
  };
}

export const tokenBuckets = defineTarget<Input>({
  name: "token-buckets",
  seeds: [
    {
      limit: 10,
      burst: 5,
      windowMs: 1_000,
      room: 3,
      usage: '{"prompt_tokens":1,"completion_tokens":2}',
      steps: [{ waitMs: 0, key: "a", amount: 3 }],
    },
  ],
  smokeCases: 2_500,
  generate,
  run: (input) => `${checkUsage(input.usage)} ${checkBuckets(input)}`,
});
