/**
 * An API receives the arguments of OpenAPI tools that rules read: a small part of
 * `npm run test:differential -- --openapi node` (or the Python of an environment with FastAPI).
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { runOpenApiDifferential } from "../differential/openapi.ts";

test("a server reads from the requests of OpenAPI tools exactly the arguments that rules read", async () => {
  const { findings, compared, rejected } = await runOpenApiDifferential({
    server: "node",
    count: 500,
    seed: 1,
    connections: 8,
  });
  assert.deepEqual(findings, []);
  // Both outcomes must occur, or nothing was compared.
  assert.ok(compared > 100 && rejected > 100, `${compared} compared, ${rejected} rejected`);
});
