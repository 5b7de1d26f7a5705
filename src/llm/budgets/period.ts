/**
 * The periods of budgets: calendar days, weeks from Monday and months, all in UTC, so that every replica agrees. A
 * period's name is part of the names under which spending is stored.
 */
export type PeriodUnit = "day" | "week" | "month";

export interface Period {
  /** `2026-11-15` (the first day, for a week too) or `2026-11`. */
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
}

const DAY_MS = 86_400_000;

export function periodOf(unit: PeriodUnit, nowMs: number): Period {
  const now = new Date(nowMs);
  const [year, month, date] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()];
  if (unit === "month") {
    const startMs = Date.UTC(year, month, 1);
    return { name: isoDay(startMs).slice(0, "2026-11".length), startMs, endMs: Date.UTC(year, month + 1, 1) };
  }
  const today = Date.UTC(year, month, date);
  // Sunday is day 0 of JavaScript's week and the last of ours.
  const startMs = unit === "day" ? today : today - ((now.getUTCDay() + 6) % 7) * DAY_MS;
  return { name: isoDay(startMs), startMs, endMs: startMs + (unit === "day" ? DAY_MS : 7 * DAY_MS) };
}

/** What is counted is kept for as long again: a clock that jumps to the next period and back finds it. */
export function keptUntilMs({ startMs, endMs }: Period): number {
  return endMs + (endMs - startMs);
}

/** Until the period ends, rounded up, at least 1. */
export function secondsLeft({ endMs }: Period, nowMs: number): number {
  return Math.max(1, Math.ceil((endMs - nowMs) / 1000));
}

function isoDay(atMs: number): string {
  return new Date(atMs).toISOString().slice(0, "2026-11-15".length);
}
