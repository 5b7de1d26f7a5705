import assert from "node:assert/strict";
import { test } from "node:test";
import type { RequestRecord } from "../../observe/trace/request-record.ts";
import type { Paint } from "../terminal/terminal.ts";
import { followHead, followRow } from "./requests-command.ts";

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
    const shown = `${followHead(paintFor(columns))}${followRow(RECORD, paintFor(columns))}`;
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
