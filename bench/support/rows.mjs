/** BENCH_ROWS="GET,chat": only rows whose titles begin with one of these words. */
export function isWanted(title) {
  const rows = process.env.BENCH_ROWS;
  return rows === undefined || rows.split(",").some((row) => title.toLowerCase().startsWith(row.trim().toLowerCase()));
}
