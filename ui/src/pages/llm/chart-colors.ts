/**
 * Defines the colors of chart series by index, shared with the legend.
 */
export const COLORS = ["--accent", "--ok", "--code-number", "--warn", "--bad", "--muted"] as const;
