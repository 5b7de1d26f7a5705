/**
 * Colors of the series of a chart, by their place; the legend has the same.
 */
export const COLOURS = ["--accent", "--ok", "--code-number", "--warn", "--bad", "--muted"] as const;
