import assert from "node:assert/strict";
import { test } from "node:test";
import { aRow } from "../../../test/support/history/history-row.ts";
import { COLUMN_INDEX, COLUMNS, type Column, IS_NUMBER, type RowValues } from "./history-row.ts";
import { batchOf, batchRows, groupRows, HOUR_MS, RowBatchBuilder } from "./row-batch.ts";

const of = (row: RowValues | undefined, column: Column) => row?.[COLUMN_INDEX[column]];

test("a batch has the rows that were added, and each common text once", () => {
  const rows = Array.from({ length: 200 }, (_, i) =>
    aRow({
      id: `r${i}`,
      time: 1_763_000_000_000 + i,
      status: i % 3 === 0 ? null : 200,
      first_byte_us: i % 2 === 0 ? null : i,
      route: "web",
      team: "web",
      request_id: `q${i}`,
      path: `/été/${i % 2}`,
      cost_nano: i * 1e9,
      charges: i === 7 ? '[["a/=b",3]]' : "",
    }),
  );
  const batch = batchOf(rows);
  assert.deepEqual(batchRows(batch), rows);
  assert.equal(batch.texts.match(/^web$/gm)?.length, 2);
});

test("taking a batch starts an empty one", () => {
  const builder = new RowBatchBuilder((text) => text);
  builder.add(aRow({ id: "a", team: "red" }));
  assert.equal(builder.take().rows, 1);
  assert.equal(builder.rows, 0);
  builder.add(aRow({ id: "b", team: "red" }));
  assert.deepEqual(batchRows(builder.take()), [aRow({ id: "b", team: "red" })]);
});

test("texts of the client are redacted once, and other columns are not", () => {
  const redacted: string[] = [];
  const builder = new RowBatchBuilder((text) => {
    redacted.push(text);
    return text.replace("secret", "<redacted>");
  });
  const fields = { server: "secret", tool: "secret", team: "secret", result: "secret", charges: '[["secret",1]]' };
  builder.add(aRow({ id: "secret", ...fields, request_id: "secret-1", path: "" }));
  builder.add(aRow({ id: "b", ...fields, request_id: "", path: "" }));
  const [first, second] = batchRows(builder.take());
  for (const row of [first, second]) {
    for (const name of ["tool", "team"] as const) assert.equal(of(row, name), "<redacted>");
    for (const name of ["server", "result"] as const) assert.equal(of(row, name), "secret");
    assert.equal(of(row, "charges"), fields.charges);
  }
  assert.equal(of(first, "id"), "secret");
  assert.equal(of(first, "request_id"), "<redacted>-1");
  assert.deepEqual(redacted.sort(), ["secret", "secret-1"]);
});

/** The gateway makes these texts itself, or takes them from the configuration. A new column is redacted unless it is added here. */
const PLAIN_COLUMNS: readonly Column[] = [
  "id",
  "listener",
  "route",
  "backend",
  "method",
  "client",
  "mcp_method",
  "server",
  "session",
  "mcp_outcome",
  "provider",
  "response_end",
  "result",
  "reason",
  "policies",
  "trace_id",
  "charges",
];

test("each column that can quote a client or a server is redacted", () => {
  const builder = new RowBatchBuilder((text) => text.replace("secret", "<redacted>"));
  const texts = COLUMNS.filter((_, i) => !IS_NUMBER[i]);
  builder.add(aRow({ id: "secret", ...Object.fromEntries(texts.map((name) => [name, "secret"])) }));
  const [row] = batchRows(builder.take());
  for (const name of texts) assert.equal(of(row, name), PLAIN_COLUMNS.includes(name) ? "secret" : "<redacted>", name);
});

test("line breaks and NUL characters in texts become spaces", () => {
  const [row] = batchRows(batchOf([aRow({ id: "a", message: "one\n\0two", subject: "a\nb" })]));
  assert.equal(of(row, "message"), "one two");
  assert.equal(of(row, "subject"), "a b");
});

test("rows with the same hour and shared values are one group", () => {
  const rows = [
    aRow({ id: "0", time: HOUR_MS, team: "red" }),
    aRow({ id: "1", time: HOUR_MS + 1, team: "red", input_tokens: 9, request_id: "q" }),
    aRow({ id: "2", time: 2 * HOUR_MS, team: "red" }),
    aRow({ id: "3", time: HOUR_MS, team: "red", status: null }),
    aRow({ id: "4", time: HOUR_MS, key: "red" }),
    aRow({ id: "5", time: HOUR_MS, team: "red", status: null }),
  ];
  const { firstRows, groupOfRow } = groupRows(batchOf(rows));
  assert.deepEqual(firstRows, [0, 2, 3, 4]);
  assert.deepEqual([...groupOfRow], [0, 0, 1, 2, 3, 2]);
});

test("rows whose values have the same hash are different groups", () => {
  // The hash is a polynomial of the values with the base 31: subtracting 31 from one value adds 1 to the value before it.
  const texts = Array.from({ length: 70 }, (_, i) => `t${i}`);
  const rows = texts.flatMap((team, i) => texts.slice(0, 3).map((key) => aRow({ id: `${i}${key}`, team, key })));
  const { firstRows } = groupRows(batchOf(rows));
  assert.equal(firstRows.length, rows.length);
});
