import assert from "node:assert/strict";
import { test } from "node:test";
import type { RequestRecord } from "../../record/trace/record.ts";
import type { Paint } from "../terminal/terminal.ts";
import { requestRow, requestsHead, requestsText } from "./requests-command.ts";

const paintFor = (columns: number): Paint => Object.assign((text: string) => text, { columns });
const RECORD = {
  seq: 1,
  id: "d76640f0fea5e94b",
  time: "2026-01-02T10:33:15.540Z",
  method: "GET",
  path: "/people/1",
  route: "people-directory-with-a-long-name",
  subject: "alice@example.com",
  status: 401,
  end: "complete",
  durationMs: 2.2,
  steps: [],
  failure: { code: "authentication_failed", message: "no", detail: "no API key was sent" },
} as unknown as RequestRecord;

for (const columns of [80, 100, 124, 125, 160])
  test(`a followed request in ${columns} columns: time and id are whole, and so are its names and reason`, () => {
    const shown = `${requestsHead(paintFor(columns))}${requestRow(RECORD, paintFor(columns))}`;
    const lines = shown.trimEnd().split("\n");
    assert.ok(
      lines.every((line) => line.length <= columns),
      shown,
    );
    for (const text of ["10:33:15.540", RECORD.id, "GET /people/1"])
      assert.ok(
        lines.some((line) => line.includes(text)),
        shown,
      );
    const names = [RECORD.route, RECORD.subject, "authentication_failed: no API key was sent"];
    const said = shown.replaceAll(/\s+/g, " ");
    if (columns < 125) for (const text of names) assert.ok(said.includes(text ?? ""), shown);
  });

for (const columns of [80, 120, 200])
  test(`a list in ${columns} columns: no id is broken, and the newest request is last`, () => {
    const ids = ["d76640f0fea5e94b", "7b0e4a52-98a1-4b3f-a1d4-0f6c2f3f9a10", "x".repeat(48)];
    const shown = requestsText(
      ids.map((id, i) => ({ ...RECORD, id, seq: 9 - i })),
      paintFor(columns),
    );
    const places = ids.map((id) => shown.indexOf(id));
    assert.ok(
      places.every((place) => place > 0),
      shown,
    );
    assert.deepEqual(
      [...places].sort((a, b) => b - a),
      places,
      shown,
    );
  });
