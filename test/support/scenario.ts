/**
 * Shared helpers of scenario tests: a gateway in front of one backend, both closed when the test ends.
 */
import type { RequestListener } from "node:http";
import type { TestContext } from "node:test";
import { startBackend, type TestBackend } from "./backend.ts";
import { eventually as lookAgain } from "./eventually.ts";
import { startGateway, type TestGateway, type TestGatewayOptions } from "./gateway.ts";

export interface Scenario {
  readonly gateway: TestGateway;
  readonly backend: TestBackend;
}

/** `policies` (and more fields of the route) as YAML flow text, for example `policies: { cors: { … } }`. */
export async function behindGateway(
  t: TestContext,
  listener?: RequestListener,
  routeFields = "",
  options: TestGatewayOptions = {},
): Promise<Scenario> {
  const backend = await startBackend(listener);
  t.after(() => backend.close());
  const fields = routeFields === "" ? "" : `, ${routeFields}`;
  const gateway = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }]${fields} }]\n`,
    options,
  );
  t.after(() => gateway.close());
  return { gateway, backend };
}

/** A gateway from YAML, closed when the test ends. */
export async function gatewayFor(t: TestContext, yaml: string, options: TestGatewayOptions = {}): Promise<TestGateway> {
  const gateway = await startGateway(yaml, options);
  t.after(() => gateway.close());
  return gateway;
}

export async function backendFor(t: TestContext, listener?: RequestListener): Promise<TestBackend> {
  const backend = await startBackend(listener);
  t.after(() => backend.close());
  return backend;
}

/** For scenarios that were begun before it had a file of its own. */
export const eventually = lookAgain;
