import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, finishedRequest } from "../../test/support/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import { COLUMNS, type HistoryRow, type RowValues } from "./history/history-row.ts";
import { createHistoryRecorder, recordFromRow } from "./history-record.ts";
import type { RecordedRule, RequestRecord } from "./trace/record.ts";
import { createRedaction } from "./trace/redact.ts";

const DENIED: Outcome = { status: 403, end: "complete", responseBytes: 0 };
const KEY = "key-of-ada-0123456789";

function stored(rules: readonly RecordedRule[], outcome = DENIED): RequestRecord {
  const rows: RowValues[] = [];
  const record = createHistoryRecorder(createRedaction(), undefined, (row) => void rows.push(row));
  const exchange = anExchange({ headers: { authorization: `Bearer ${KEY}` } });
  exchange.checkedRules = rules;
  exchange.limits.readings = [{ rule: "3 per hour", limit: "3", remaining: 1, resetSeconds: 60, share: 1 / 3 }];
  exchange.deniedInShadow("rateLimit", `no bucket for ${KEY}`);
  record(finishedRequest(exchange, outcome, 5));
  const [row = []] = rows;
  return recordFromRow(Object.fromEntries(COLUMNS.map((name, i) => [name, row[i]])) as unknown as HistoryRow);
}

const rule = (values: string): RecordedRule => ({ kind: "allow", rule: "jwt.role", isMet: false, values });

test("a row explains a rejection by its rules, limits, and policies in shadow mode, without credentials", () => {
  const { rules, limits, shadow } = stored([rule(`jwt.role is "${KEY}"`)]);
  assert.deepEqual(rules, [rule('jwt.role is "<redacted>"')]);
  assert.deepEqual(limits, [{ limit: "3 per hour", remaining: "1 of 3", resetSeconds: 60 }]);
  assert.deepEqual(shadow, [{ policy: "rateLimit", reason: "no bucket for <redacted>" }]);
});

test("a row has only the parts that are short enough", () => {
  const { rules, limits } = stored([rule("x".repeat(5_000))]);
  assert.equal(rules, undefined);
  assert.equal(limits?.length, 1);
});
