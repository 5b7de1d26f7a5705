import assert from "node:assert/strict";
import { test } from "node:test";
import { HeaderList } from "../headers.ts";
import { HttpClientError } from "../http-client.ts";
import { requestHead } from "./connection.ts";

const NONE = { kind: "none" } as const;

test("parsed lines are forwarded unchanged", () => {
  const headers = new HeaderList(["host", "a", "x-a", "\xe9"], true);
  headers.set("x-request-id", "1");
  assert.equal(
    requestHead("GET", "/", headers, NONE, undefined),
    "GET / HTTP/1.1\r\nhost: a\r\nx-a: \xe9\r\nx-request-id: 1\r\nconnection: keep-alive\r\n\r\n",
  );
});

for (const [name, value] of [
  ["x-a", "1\r\nx-b: 2"],
  ["x-a", "1\n"],
  ["x-a", "1\r"],
  ["x-a", "\0"],
  ["x-a", "\u010a"],
  ["x-a: 1\r\nx-b", "2"],
  ["", "2"],
] as const)
  test(`[L1] ${JSON.stringify([name, value])} cannot be sent, however it was added to the list`, () => {
    const added = new HeaderList(["host", "a"], true);
    added.add(name, value);
    const set = new HeaderList(["host", "a"], true);
    set.set(name, value);
    const replaced = new HeaderList(["host", "a", "x-a", "1"], true);
    replaced.set(name, value);
    const given = new HeaderList(["host", "a", name, value]);
    for (const headers of [added, set, replaced, given, added.clone()])
      assert.throws(() => requestHead("GET", "/", headers, NONE, undefined), HttpClientError);
  });
