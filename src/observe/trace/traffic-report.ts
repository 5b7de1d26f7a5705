/**
 * Traffic over time as `/debug/history` shows it. Pure data; the shape that the web UI reads.
 */
export interface HistoryPoint {
  /** Begin of the slot, milliseconds since the epoch. */
  readonly at: number;
  readonly requests: number;
  /** 5xx, or no complete response. */
  readonly failed: number;
  /** 4xx. */
  readonly rejected: number;
  readonly tokens: number;
  readonly cost: number;
  /** Null without requests. */
  readonly p95Ms: number | null;
}

export interface HistoryReport {
  readonly slotSeconds: number;
  /** Oldest first, without gaps, back to the start of the process at most. */
  readonly points: readonly HistoryPoint[];
  /** Over the whole range. */
  readonly total: Omit<HistoryPoint, "at">;
}
