/**
 * Runs every query of the Grafana dashboard of the history against PostgreSQL, with the macros that Grafana replaces.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { HISTORY_DATABASES, openedDatabase } from "../support/history/history-database.ts";
import { aRow, writeRows } from "../support/history/history-row.ts";

interface Dashboard {
  readonly panels: readonly { readonly title: string; readonly targets: readonly { readonly rawSql: string }[] }[];
}

const NOW = Date.parse("2026-11-17T12:30:00Z");
const postgres = HISTORY_DATABASES.find(({ name }) => name === "PostgreSQL");

test("every query of the dashboard returns data", { skip: postgres?.skip ?? true }, async (t) => {
  const engine = await openedDatabase(t, postgres as NonNullable<typeof postgres>);
  await writeRows(engine, [
    aRow({ id: "1", time: NOW, team: "red", subject: "ada", model: "m", cost_nano: 2_500_000_000, input_tokens: 5 }),
    aRow({ id: "2", time: NOW, server: "files", tool: "read", result: "failed", status: 502, reason: "timeout" }),
  ]);
  const { panels } = JSON.parse(readFileSync("deploy/grafana/history.json", "utf8")) as Dashboard;
  assert.ok(panels.length >= 8);
  for (const { title, targets } of panels)
    for (const { rawSql } of targets) {
      const statement = rawSql
        .replaceAll("$__unixEpochFrom()", String(NOW / 1000 - 86_400))
        .replaceAll("$__unixEpochTo()", String(NOW / 1000 + 3_600));
      const rows = await engine.reader.all(statement);
      assert.ok(rows.length > 0, `${title} has no data`);
      if (title === "Cost") assert.deepEqual(rows, [{ cost: 2.5 }]);
    }
});
