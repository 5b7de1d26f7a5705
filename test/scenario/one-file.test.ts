/**
 * The single executable: built from this checkout, then run where there is no Node and nothing beside it. UI, demo and
 * gwctl are inside; what cannot be inside says so.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { DEMO_ARGUMENT } from "../../src/bin/demo-program.ts";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { docCommands, runDocCommands } from "../support/package/doc-commands.ts";
import { demoYaml } from "../support/package/packed.ts";
import { HELLO_ROUTE, sendMany, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } },
};
/** No Node on the path. */
const NOWHERE = { PATH: "/nowhere" };
const EVENT = '{"eventStart":null,"eventEnd":1,"severity":"info","message":{"type":"requestStarted"}}\n';

let folder: string;
let program: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), "gateway-one-file-"));
  const made = spawnSync(process.execPath, ["scripts/package.mjs", "--one-file", folder], { encoding: "utf8" });
  assert.equal(made.status, 0, made.stderr);
  program = join(folder, "gateway");
});
after(() => rmSync(folder, { recursive: true, force: true }));

test("the executable serves the demo and the UI without Node", async (t) => {
  const gateway = startGatewayProcess(t, ["-f", "-"], {
    command: [program],
    cwd: "/",
    stdin: demoYaml(program, [DEMO_ARGUMENT]),
    env: NOWHERE,
  });
  const url = `http://127.0.0.1:${await gateway.port()}`;
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const answer = await fetch(`${url}/mcp`, { method: "POST", headers, body: JSON.stringify(INITIALIZE) });
  assert.match(await answer.text(), /"serverInfo":\{"name":"demo"/);
  const page = await (await fetch(`${url}/ui`)).text();
  const script = /src="([^"]+app-[^"]+\.js)"/.exec(page)?.[1] ?? "";
  const loaded = await fetch(new URL(script, `${url}/ui/`));
  assert.equal(loaded.headers.get("content-type"), "text/javascript; charset=utf-8");
  await loaded.arrayBuffer();
  gateway.child.kill("SIGTERM");
  assert.equal((await gateway.exited).code, 0);
});

test("the executable serves with several threads", {
  skip: threadingNode() === undefined && "needs Linux, and Node 22.12 or the package node-linux-<arch>",
}, async (t) => {
  const out = join(folder, "threads");
  const made = spawnSync(threadingNode() ?? "", ["scripts/package.mjs", "--one-file", out], { encoding: "utf8" });
  assert.equal(made.status, 0, made.stderr);
  const stdin = threadedConfig(2, HELLO_ROUTE);
  const gateway = startGatewayProcess(t, ["-f", "-"], {
    command: [join(out, "gateway")],
    cwd: "/",
    stdin,
    env: NOWHERE,
  });
  const url = `http://127.0.0.1:${await gateway.port("main")}`;
  assert.deepEqual((await sendMany(`${url}/hello`, 40, 20)).statuses, { 200: 40 });
  const memory = (await (await fetch(`${await gateway.adminUrl()}/memory`)).json()) as { threads: object[] };
  assert.equal(memory.threads.length, 2);
  gateway.child.kill("SIGTERM");
  assert.equal((await gateway.exited).code, 0);
});

test("the executable records a history in SQLite, and contains the PostgreSQL client", async (t) => {
  const history = mkdtempSync(join(tmpdir(), "gateway-history-"));
  t.after(() => rmSync(history, { recursive: true, force: true }));
  const yamlWith = (more: object): string =>
    JSON.stringify({
      config: { adminAddr: "127.0.0.1:0", history: { folder: history, ...more } },
      gateways: { default: { port: 0 } },
      routes: [{ policies: { directResponse: { body: "hi" } } }],
    });
  const run = (yaml: string) => startGatewayProcess(t, ["-f", "-"], { command: [program], stdin: yaml, env: NOWHERE });
  const gateway = run(yamlWith({}));
  await (await fetch(`http://127.0.0.1:${await gateway.port()}/`)).text();
  const adminUrl = await gateway.adminUrl();
  await eventually("the request is stored", async () => {
    const usage = await (await fetch(`${adminUrl}/debug/usage`)).json();
    return (usage as { total: { requests: number } }).total.requests === 1;
  });
  gateway.child.kill("SIGTERM");
  assert.equal((await gateway.exited).code, 0);
  // Nothing listens on this port.
  const other = run(yamlWith({ postgres: "postgres://gateway@127.0.0.1:1/gateway" }));
  assert.match(await other.logged("history database unavailable"), /ECONNREFUSED/);
});

test("the executable says that it has no profiler", async (t) => {
  const yaml = 'config: { adminAddr: "127.0.0.1:0" }\ngateways: { default: { port: 0 } }\n';
  const gateway = startGatewayProcess(t, ["-f", "-"], { command: [program], stdin: yaml, env: NOWHERE });
  const answer = await fetch(`${await gateway.adminUrl()}/debug/pprof/profile?seconds=1`);
  assert.deepEqual(
    [answer.status, await answer.text()],
    [501, "the single executable contains no profiler; take profiles with the npm package\n"],
  );
  const asked = (args: string[]) => spawnSync(program, args, { encoding: "utf8", env: NOWHERE });
  const healthy = asked(["--health", new URL(await gateway.adminUrl()).host]);
  assert.deepEqual([healthy.status, healthy.stdout], [0, "ready\n"]);
  gateway.child.kill("SIGTERM");
  await gateway.exited;
  const gone = asked(["--health", new URL(await gateway.adminUrl()).host]);
  assert.equal(gone.status, 1);
  assert.match(gone.stderr, /^no gateway answers at 127\.0\.0\.1:\d+: connect ECONNREFUSED.*\n$/);
});

test("the executable checks passwords in a thread", async (t) => {
  const yaml = JSON.stringify({
    config: { adminAddr: "off" },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        policies: {
          basicAuth: {
            htpasswd:
              "apr:$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0\nbob:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
          },
          directResponse: { status: 200, body: "in" },
        },
      },
    ],
  });
  const gateway = startGatewayProcess(t, ["-f", "-"], { command: [program], stdin: yaml, env: NOWHERE });
  const url = `http://127.0.0.1:${await gateway.port()}`;
  const statusOf = async (pair: string): Promise<number> => {
    const headers = { authorization: `Basic ${Buffer.from(pair).toString("base64")}` };
    return (await fetch(url, { headers })).status;
  };
  assert.equal(await statusOf("apr:secret"), 200);
  assert.equal(await statusOf("bob:U*U"), 200);
  assert.equal(await statusOf("bob:other"), 401);
  gateway.child.kill("SIGTERM");
  await gateway.exited;
});

test("the commands of the page work", () => {
  const empty = join(folder, "page");
  mkdirSync(empty);
  symlinkSync(program, join(empty, "gateway"));
  writeFileSync(join(empty, "config.yaml"), "gateways: { default: { port: 0 } }\n");
  runDocCommands(docCommands("docs/install.md", "Single file"), empty, { PATH: "/bin" });
});

test("a link named gwctl, and the argument ctl, are gwctl", () => {
  const link = join(folder, "gwctl");
  symlinkSync(program, link);
  for (const command of [[link], [program, "ctl"]]) {
    const [name = "", ...args] = command;
    const ask = (...rest: string[]) =>
      spawnSync(name, [...args, ...rest], { encoding: "utf8", env: { ...NOWHERE, HOME: folder }, input: EVENT });
    assert.match(ask("version").stdout, /^gwctl \d/);
    // Loaded lazily: YAML, the configuration's schema, the terminal's libraries.
    assert.match(ask("proxy", "trace", "--file", "-").stdout, /Request Start +request started/);
    assert.match(ask("auth", "check", "-f", "-").stderr, /expected|no login to check|unknown field/);
  }
});

test("the executable has its licences beside it", () => {
  for (const name of ["LICENSE", "NOTICE", "THIRD-PARTY-LICENSES.txt", "SHA256SUMS"])
    assert.ok(readdirSync(folder).includes(name), name);
});
