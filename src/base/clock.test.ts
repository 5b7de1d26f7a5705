import assert from "node:assert/strict";
import { test } from "node:test";
import { parseTime } from "./clock.ts";

test("times without a zone are in UTC, in every zone of the machine", () => {
  const zone = process.env.TZ;
  try {
    for (const TZ of ["Asia/Tokyo", "America/New_York", "UTC"]) {
      process.env.TZ = TZ;
      for (const text of [
        "2026-11-18T18:00:00",
        "2026-11-18 18:00",
        "2026-11-18T18:00:00Z",
        "2026-11-19T03:00:00.0+09:00",
      ])
        assert.equal(parseTime(text), Date.UTC(2026, 10, 18, 18), `${text} in ${TZ}`);
      assert.equal(parseTime("2026-11-18"), Date.UTC(2026, 10, 18), TZ);
    }
  } finally {
    if (zone === undefined) delete process.env.TZ;
    else process.env.TZ = zone;
  }
});

test("other text is not a time", () => {
  for (const text of ["", "18 Nov 2026", "2026-13-01", "2026-11-18T25:00", "30d", "2026", "1700000000000"])
    assert.ok(Number.isNaN(parseTime(text)), text);
});
