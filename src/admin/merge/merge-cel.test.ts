import assert from "node:assert/strict";
import { test } from "node:test";
import { callAdmin } from "../../../test/support/admin.ts";
import { jsonResponse, textResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";
import { mergedEndpoints } from "./merged-endpoints.ts";

const NOT_FOUND = textResponse(404, "no request\n");

function cel(own: ReturnType<typeof jsonResponse>, threads: readonly ReturnType<typeof jsonResponse>[]) {
  const [endpoint] = mergedEndpoints([{ path: ADMIN_PATHS.cel, doc: "", POST: () => own }], async () => threads);
  assert.ok(endpoint);
  return callAdmin(endpoint, "", { method: "POST", body: "{}" });
}

test("results of several requests come from all threads", async () => {
  const { json } = await cel(jsonResponse({ results: [] }), [
    jsonResponse({ results: [{ id: "a", value: true }] }),
    jsonResponse({ results: [{ id: "b", error: "e" }] }),
  ]);
  assert.deepEqual(json(), {
    results: [
      { id: "a", value: true },
      { id: "b", error: "e" },
    ],
  });
});

test("one request is evaluated by the thread that served it", async () => {
  const { json } = await cel(NOT_FOUND, [NOT_FOUND, jsonResponse({ value: true })]);
  assert.deepEqual(json(), { value: true });
  assert.equal((await cel(NOT_FOUND, [NOT_FOUND])).status, 404);
});

test("an invalid expression is rejected once", async () => {
  const { status, json } = await cel(jsonResponse({ error: "syntax error" }, 400), []);
  assert.equal(status, 400);
  assert.deepEqual(json(), { error: "syntax error" });
});
