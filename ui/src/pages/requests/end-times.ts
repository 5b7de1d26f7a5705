/**
 * Computes the time column of the request table. Rows are in the order in which requests ended, so the column shows
 * that time and does not go back.
 */
interface Ended {
  readonly time: string;
  readonly durationMs: number;
}

/** Start and duration are rounded separately, so their sum can be wrong by this much. */
const ROUNDING_MS = 2;

/** Newest first, in milliseconds since the epoch. */
export function endTimes(rows: readonly Ended[]): number[] {
  let newer = Number.POSITIVE_INFINITY;
  return rows.map(({ time, durationMs }) => {
    const ended = Date.parse(time) + Math.round(durationMs);
    newer = ended > newer && ended - newer <= ROUNDING_MS ? newer : ended;
    return newer;
  });
}
