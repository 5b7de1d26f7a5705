/** Endpoints of a Service that cannot be reached: another one gets the request, and without any, the answer is 503. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { freePort } from "../support/free-port.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const configFor = (service: string, policies = "{}"): string =>
  `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ policies: ${policies}, backends: [{ service: ${service} }] }]
`;

test("a request whose connection fails is sent to another endpoint, with its body", async (t) => {
  const backend = await backendFor(t);
  const dead = await freePort();
  for (const [method, body] of [
    ["GET"],
    ["DELETE"],
    ["POST", "a=1"],
    ["POST", "x".repeat(20_000)],
    ["PUT", "b"],
  ] as const) {
    const gateway = await gatewayFor(
      t,
      configFor(`{ name: web, endpoints: ["127.0.0.1:${dead}", "${backend.host}"] }`),
    );
    for (let i = 0; i < 4; i++) {
      const response = await fetch(gateway.url(), { method, ...(body === undefined ? {} : { body }) });
      assert.equal(response.status, 200, `${method} ${body?.length}`);
      assert.equal(((await response.json()) as { body: string }).body, body ?? "");
    }
    assert.match(await gateway.logged("backend cannot be reached"), new RegExp(`${dead}`));
  }
});

test("if no endpoint can be reached, the answer is 502, and a policy without retries changes nothing", async (t) => {
  const dead = await freePort();
  const list = `endpoints: ["127.0.0.1:${dead}", "127.0.0.2:${dead}"]`;
  for (const policies of ["{}", "{ retry: { attempts: 1, precondition: 'false' } }"]) {
    const gateway = await gatewayFor(t, configFor(`{ name: web, ${list} }`, policies));
    const response = await fetch(gateway.url());
    assert.equal(response.status, 502);
    assert.equal(response.headers.get("x-gateway-error"), "backend_unavailable");
  }
});

test("a Service without ready endpoints gets 503", async (t) => {
  const gateway = await gatewayFor(t, configFor("{ name: web }"));
  const response = await fetch(gateway.url());
  assert.equal(response.status, 503);
  assert.equal(await response.text(), "the service has no ready endpoints");
});
