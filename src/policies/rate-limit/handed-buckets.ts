/**
 * The buckets of one rule for the process that follows at an upgrade. It gets what is used, not what is left: first all of
 * it, then what the requests that end here still use, which it adds to its own counts. Times are those of the wall clock,
 * because each process has a monotonic clock of its own.
 */

import type { Clock } from "../../base/clock.ts";
import type { HandedLimit, UsedBucket } from "../../core/policy.ts";
import { type BucketRule, type BucketStore, UNUSED, windowsEnded } from "./bucket-store.ts";

interface Told {
  readonly used: number;
  readonly windowStartMs: number;
}

export function createHandedBuckets(name: string, store: BucketStore, clock: Clock): HandedLimit {
  const { rule } = store;
  let told = new Map<string | null, Told>();

  return {
    name,
    used(since) {
      const nowMs = Math.floor(clock.monotonicMs());
      const toWallMs = clock.now() - nowMs;
      const before = since === "ever" ? new Map<string | null, Told>() : told;
      const rows: UsedBucket[] = [];
      told = new Map();
      for (const { key: shown, remaining, windowStartMs } of store.views(nowMs)) {
        const key = shown ?? null;
        const used = rule.capacity - remaining;
        const known = before.get(key);
        const rest = known === undefined ? 0 : leftOf(rule, known.used, known.windowStartMs, nowMs);
        if (used !== rest) rows.push([key, used - rest, windowStartMs + toWallMs]);
        told.set(key, { used, windowStartMs });
      }
      return rows;
    },
    add(buckets) {
      const nowMs = Math.floor(clock.monotonicMs());
      const toOwnMs = nowMs - clock.now();
      store.lock();
      for (const [key, used, wallMs] of buckets) {
        // A wall clock that went back must not put a window into the future.
        const beganMs = Math.min(nowMs, Math.floor(wallMs + toOwnMs));
        const startMs = beganMs + windowsEnded(rule, beganMs, nowMs) * rule.windowMs;
        const amount = leftOf(rule, used, beganMs, nowMs);
        if (amount === 0) continue;
        store.find(key ?? undefined, nowMs);
        const slot = store.open(key ?? undefined, startMs === UNUSED ? UNUSED - 1 : startMs);
        store.take(slot, amount);
      }
      store.unlock();
    },
  };
}

/** What is still used of an amount when the windows since then have ended. What was given back counts in its own window. */
function leftOf(rule: BucketRule, used: number, windowStartMs: number, nowMs: number): number {
  const windows = windowsEnded(rule, windowStartMs, nowMs);
  if (windows === 0) return used;
  return Math.max(0, used - windows * rule.refill);
}
