/**
 * Statements of the specification about the configuration and the admin interface that no other test states by themselves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../src/base/sliced-work.ts";
import { loadConfig } from "../../src/config/load/load.ts";
import { startBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";

function problemsOf(text: string): string[] {
  const loaded = finish(loadConfig([{ file: "f", text }], {}));
  return loaded.ok ? [] : loaded.problems.map((problem) => problem.toLine());
}

test("a listener's port is a whole number and its protocol HTTP; another protocol is rejected [S2.1-15]", () => {
  const listener = (fields: string): string => `gateways: { default: { ${fields} } }\nroutes: []\n`;
  assert.deepEqual(problemsOf(listener("port: 3000, protocol: HTTP")), []);
  for (const fields of ["port: 3000, protocol: GOPHER", "port: 3.5, protocol: HTTP", "protocol: HTTP"])
    assert.equal(problemsOf(listener(fields)).length, 1, fields);
});

test("a route without a name is served [S2.1-16]", async (t) => {
  const backend = await startBackend((_req, res) => void res.end("ok"));
  t.after(() => backend.close());
  const gateway = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
  );
  t.after(() => gateway.close());
  assert.equal(await (await fetch(gateway.url())).text(), "ok");
});

test("the unit of a limit is Seconds, Minutes or Hours, and required [S2.6-10]", () => {
  const limit = (unit: string): string =>
    `gateways: { default: { port: 0 } }\nroutes:\n  - policies: { rateLimit: { local: [{ requests: 1${unit} }] } }\n`;
  for (const unit of ["Seconds", "Minutes", "Hours"]) assert.deepEqual(problemsOf(limit(`, unit: ${unit}`)), []);
  for (const unit of ["", ", unit: Days", ", unit: seconds"]) assert.equal(problemsOf(limit(unit)).length, 1, unit);
});

test("the file sets the log level, and /logging takes each of the five [S2.1-21] [S4.2-12]", async (t) => {
  const gateway = await startGateway(
    "config: { logging: { level: warn } }\ngateways: { default: { port: 0 } }\nroutes: [{ policies: { directResponse: { status: 200 } } }]\n",
  );
  t.after(() => gateway.close());
  const logging = (query = "", method = "GET"): Promise<Response> =>
    fetch(`${gateway.adminUrl}/logging${query}`, { method });
  assert.match(await (await logging()).text(), /warn/);
  for (const level of ["error", "warn", "info", "debug", "trace"])
    assert.match(await (await logging(`?level=${level}`, "POST")).text(), new RegExp(`^current log level is ${level}`));
  assert.equal((await logging("?level=loud", "POST")).status, 400);
});

test("the admin interface asks for no credentials [S4.2-16]", async (t) => {
  const gateway = await startGateway("gateways: { default: { port: 0 } }\nroutes: []\n");
  t.after(() => gateway.close());
  assert.equal((await fetch(`${gateway.adminUrl}/config_dump`)).status, 200);
});

test("the admin interface can be bound to all interfaces [S5-17]", async (t) => {
  const gateway = await startGateway(
    'config: { adminAddr: "0.0.0.0:0" }\ngateways: { default: { port: 0 } }\nroutes: []\n',
  );
  t.after(() => gateway.close());
  const { port } = new URL(gateway.adminUrl);
  assert.equal((await fetch(`http://127.0.0.1:${port}/config_dump`)).status, 200);
});
