import assert from "node:assert/strict";
import { test } from "node:test";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { createHostTable } from "../../http/host.ts";
import { rejectMisdirected } from "./match-route.ts";

const NAMES = ["second.org", "*.wild.org", "fourth.wild.org"];
const parts = createHostTable(NAMES.map((name) => [name, name]));

function outcome(serverName: string | undefined, host: string, names: typeof parts | undefined = parts): string {
  const exchange = { source: { address: "", port: 0, serverName }, request: { host } } as unknown as Exchange;
  try {
    rejectMisdirected(names, exchange);
    return "passes";
  } catch (error) {
    assert.ok(error instanceof GatewayError);
    return error.code;
  }
}

test("a request belongs to the listener of its connection", () => {
  for (const [serverName, host, expected] of [
    ["first.org", "first.org", "passes"],
    ["first.org", "unknown.org", "passes"],
    ["first.org", "second.org", "misdirected_request"],
    ["second.org", "second.org", "passes"],
    ["second.org", "SECOND.org.:443", "passes"],
    ["second.org", "unknown.org", "misdirected_request"],
    ["a.wild.org", "b.wild.org", "passes"],
    ["a.wild.org", "fourth.wild.org", "misdirected_request"],
    ["fourth.wild.org", "a.wild.org", "misdirected_request"],
    ["fourth.wild.org:443", "fourth.wild.org", "misdirected_request"],
    [undefined, "second.org", "passes"],
  ] as const)
    assert.equal(outcome(serverName, host), expected, `${serverName} ${host}`);
});

test("nothing is compared if no listeners share a port", () => {
  assert.equal(outcome("a.org", "b.org", undefined), "passes");
});
