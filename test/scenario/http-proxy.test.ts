import assert from "node:assert/strict";
import { test } from "node:test";
import { startGateway } from "../support/gateway.ts";
import { startBackend } from "../support/backend.ts";

test("a route without a backend or policy answers 500 no_backend", async () => {
  const gateway = await startGateway("gateways: { default: { port: 0 } }\nroutes: [{}]\n");
  const response = await fetch(gateway.url());
  assert.equal(response.status, 500);
  assert.equal(response.headers.get("x-gateway-error"), "no_backend");
  await gateway.close();
});
