/**
 * `gwctl mcp servers` (journey 3): which of the MCP servers behind one endpoint are missing.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { gwctl } from "../support/gwctl.ts";
import { rawClient } from "../support/mcp/client.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { gatewayFor } from "../support/scenario.ts";

test("targets shows the MCP servers and which of them are down", async (t) => {
  const odd = JSON.stringify(stdioFixture("odd-server"));
  const gateway = await gatewayFor(
    t,
    `mcp: { port: 0, targets: [{ name: good, stdio: ${odd} }, { name: gone, stdio: { cmd: /nonexistent/server } }] }\n`,
  );
  const targets = (...args: string[]) => gwctl(["proxy", "targets", "-p", new URL(gateway.adminUrl).port, ...args]);
  assert.match((await targets()).stdout, /^good +\S+ +not started\ngone +\S+ +not started$/m);
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const { code, stdout } = await targets();
  assert.equal(code, 0);
  assert.match(stdout, /^good +\S+ +running \(1 session\)\ngone +\S+ +failed/m);
  const listed = JSON.parse((await targets("-o", "json")).stdout) as { target: string; state: string }[];
  assert.deepEqual(
    listed.map(({ target, state }) => [target, state]),
    [
      ["good", "up"],
      ["gone", "failing"],
    ],
  );
});

test("a gateway without MCP servers has none to show", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  const run = await gwctl(["proxy", "targets", "-p", new URL(gateway.adminUrl).port]);
  assert.deepEqual([run.code, run.stdout, run.stderr], [0, "", "no MCP servers\n"]);
  assert.equal((await gwctl(["proxy", "targets", "-o", "csv"])).code, 2);
});
