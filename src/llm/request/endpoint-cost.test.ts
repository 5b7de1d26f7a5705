import assert from "node:assert/strict";
import { test } from "node:test";
import { ENDPOINTS, FREE_ENDPOINTS, SPELLINGS, SPENDING_ENDPOINTS } from "../../../test/support/llm/endpoints.ts";
import { type Cost, detectDialect, endpointCost, listedCost } from "./dialect.ts";

const METHODS = ["POST", "PUT", "PATCH", "GET", "HEAD", "OPTIONS", "DELETE", "QUERY", "REPORT"];

function costs(method: string, path: string, query = "", isUpgrade = false): { ai: Cost; host: Cost | undefined } {
  const request = { method, path, query, isUpgrade };
  const dialect = detectDialect(path);
  return { ai: endpointCost(request, dialect), host: listedCost(request, dialect) };
}

test("each endpoint that may spend money is metered or unmetered, whatever its spelling", () => {
  for (const path of SPENDING_ENDPOINTS) {
    for (const spelled of SPELLINGS.flatMap((spell) => spell(path))) {
      for (const method of METHODS) {
        const isRead = ["GET", "HEAD", "OPTIONS", "DELETE"].includes(method);
        const { ai, host } = costs(method, spelled);
        if (!isRead) assert.notEqual(ai, "free", `${method} ${spelled}`);
        if (!isRead) assert.notEqual(host, "free", `${method} ${spelled}`);
      }
    }
  }
});

test("an endpoint without a reported usage is unmetered in every spelling", () => {
  for (const { path, cost } of ENDPOINTS) {
    if (cost !== "unmetered") continue;
    for (const spelled of SPELLINGS.flatMap((spell) => spell(path)))
      assert.equal(costs("POST", spelled).host, "unmetered", spelled);
  }
});

test("the endpoints that are known to be free", () => {
  for (const path of FREE_ENDPOINTS) assert.deepEqual(costs("POST", path), { ai: "free", host: "free" }, path);
  for (const path of ["/v1/files", "/v1/batches/b", "/v1/threads/t/runs", "/v1/videos/v/content", "/v1/models/ft:m::x"])
    for (const method of ["GET", "HEAD", "DELETE", "OPTIONS"]) assert.equal(costs(method, path).ai, "free", path);
});

test("each endpoint has the cost of the table", () => {
  for (const { path, cost } of ENDPOINTS) assert.equal(costs("POST", path).ai, cost, path);
});

const DOUBTFUL: readonly [method: string, path: string, query?: string][] = [
  ["POST", "/v1/files", "$httpMethod=PUT"],
  ["POST", "/v1/files", "a=1&%24httpHeaders=X-HTTP-Method-Override%3APATCH"],
  ["GET", "/v1/models", "_method=POST"],
  ["POST", "/v1/messages/count_tokens", "x-http-method-override=PUT"],
  ["GET", "/v1beta/models/g:generateContent"],
  ["GET", "/model/m/invoke"],
  ["GET", "/generate"],
  ["DELETE", "/v1/unknown"],
  ["PUT", "/v1/unknown"],
  ["PATCH", "/v1beta/cachedContents/c"],
  ["POST", "/v1/threads/t%2Fruns"],
  ["POST", "/v1/threads/t%252Fruns"],
  ["POST", "/v1/threads/runs;x"],
  ["POST", "/v1beta/fileSearchStores/s:importFile"],
  ["POST", "/upload/v1beta/fileSearchStores/s:uploadToFileSearchStore"],
];
test("requests that a provider may read in another way are not free", () => {
  for (const [method, path, query] of DOUBTFUL) assert.equal(costs(method, path, query).ai, "unmetered", path);
});

test("a WebSocket to a model is unmetered, others are unknown to a host", () => {
  for (const path of [
    ...["/v1/realtime", "/openai/realtime", "/v1/responses"],
    "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
  ])
    assert.deepEqual(costs("GET", path, "", true), { ai: "unmetered", host: "unmetered" }, path);
  assert.deepEqual(costs("GET", "/chat", "", true), { ai: "unmetered", host: undefined });
});

test("a POST to another path is sent to the chat endpoint, which reports its usage", () => {
  assert.deepEqual(costs("POST", "/anything"), { ai: "metered", host: undefined });
});
