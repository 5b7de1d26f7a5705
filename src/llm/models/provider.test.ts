import assert from "node:assert/strict";
import { test } from "node:test";
import { HeaderList } from "../../http/headers.ts";
import { retryAfterSeconds } from "./providers.ts";

const NOW = Date.parse("Sun, 15 Nov 2026 12:00:00 GMT");
const rows: [headers: Record<string, string>, seconds: number | undefined][] = [
  [{ "retry-after": "7" }, 7],
  [{ "retry-after": "0.5" }, 0.5],
  [{ "retry-after": "Sun, 15 Nov 2026 12:01:30 GMT" }, 90],
  [{ "retry-after-ms": "250", "retry-after": "1" }, 0.25],
  [{ "retry-after-ms": "soon", "retry-after": "3" }, 3],
  [{ "retry-after": "Sun, 15 Nov 2026 11:00:00 GMT" }, undefined],
  [{ "retry-after": "-5" }, undefined],
  [{ "retry-after": "later" }, undefined],
  [{ "retry-after": "9 s" }, undefined],
  [{}, undefined],
];
for (const [headers, seconds] of rows) {
  test(`${JSON.stringify(headers)} is ${seconds} s`, () =>
    assert.equal(retryAfterSeconds(HeaderList.of(headers), NOW), seconds));
}
