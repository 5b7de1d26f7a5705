/**
 * BENCH_ROWS="GET,chat" selects rows by the first words of their titles.
 */
export function isWanted(title) {
  const rows = process.env.BENCH_ROWS;
  return rows === undefined || rows.split(",").some((row) => title.toLowerCase().startsWith(row.trim().toLowerCase()));
}
