/**
 * Transfers the buckets of one rule to the successor process during an upgrade. Times are wall-clock times, because
 * monotonic clocks differ between processes.
 */

import type { Clock } from "../../base/clock.ts";
import type { HandedLimit, UsedBucket } from "../../core/policy.ts";
import { type BucketRule, type BucketStore, UNUSED, windowsEnded } from "./bucket-store.ts";

interface SentUsage {
  readonly used: number;
  readonly windowStartMs: number;
}

export function createHandedBuckets(name: string, store: BucketStore, clock: Clock): HandedLimit {
  const { rule } = store;
  let sent = new Map<string | null, SentUsage>();

  return {
    name,
    used(since) {
      const nowMs = Math.floor(clock.monotonicMs());
      const toWallMs = clock.now() - nowMs;
      const before = since === "ever" ? new Map<string | null, SentUsage>() : sent;
      const rows: UsedBucket[] = [];
      sent = new Map();
      for (const { key: shown, remaining, windowStartMs } of store.views(nowMs)) {
        const key = shown ?? null;
        const used = rule.capacity - remaining;
        const known = before.get(key);
        const alreadySent = known === undefined ? 0 : stillUsed(rule, known.used, known.windowStartMs, nowMs);
        if (used !== alreadySent) rows.push([key, used - alreadySent, windowStartMs + toWallMs]);
        sent.set(key, { used, windowStartMs });
      }
      return rows;
    },
    add(buckets) {
      const nowMs = Math.floor(clock.monotonicMs());
      const toOwnMs = nowMs - clock.now();
      store.withLock(() => {
        for (const [key, used, wallMs] of buckets) {
          // If the wall clock was set back, the window must not start in the future.
          const beganMs = Math.min(nowMs, Math.floor(wallMs + toOwnMs));
          const startMs = beganMs + windowsEnded(rule, beganMs, nowMs) * rule.windowMs;
          const amount = stillUsed(rule, used, beganMs, nowMs);
          if (amount === 0) continue;
          store.find(key ?? undefined, nowMs);
          const slot = store.open(key ?? undefined, startMs === UNUSED ? UNUSED - 1 : startMs);
          store.take(slot, amount);
        }
      });
    },
  };
}

/** Returns the part of an earlier usage that refills have not restored. A refund counts only in its own window. */
function stillUsed(rule: BucketRule, used: number, windowStartMs: number, nowMs: number): number {
  const windows = windowsEnded(rule, windowStartMs, nowMs);
  if (windows === 0) return used;
  return Math.max(0, used - windows * rule.refill);
}
