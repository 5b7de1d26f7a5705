import assert from "node:assert/strict";
import { test } from "node:test";
import { aRow } from "../../../test/support/history/history-row.ts";
import { batchOf } from "./row-batch.ts";
import { groupRows, HOUR_MS } from "./row-groups.ts";

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
