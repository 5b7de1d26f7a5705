/**
 * An upgrade of the running program: the new process takes the sockets, the sessions and the store over, the old one
 * finishes what it began. If the new one does not start, the old one goes on.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { type GatewayProcess, startGatewayProcess } from "../support/gateway-process.ts";
import { startGwctl } from "../support/gwctl.ts";
import { type RawClient, rawClient } from "../support/mcp/client.ts";
import { startRemote } from "../support/mcp/http-server.ts";
import { backendFor } from "../support/scenario.ts";
import { BUNDLE, threadingNode } from "../support/threaded-gateway.ts";

const onLinux = process.platform === "linux" ? false : "sockets are handed over on Linux only";
const newer = threadingNode();
const STREAMS = 200;
const SESSIONS = 100;
const CHUNKS = 30;
const CALLS_AT_ONCE = 10;
const LOOKS_BETWEEN_CALLS = 8;

function fileFor(t: TestContext, config: object): string {
  const folder = mkdtempSync(join(tmpdir(), "upgrade-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "config.yaml");
  writeFileSync(file, JSON.stringify(config));
  return file;
}

/** Asks for the upgrade; the new process ends with the test. */
async function upgrade(t: TestContext, adminUrl: string): Promise<{ status: number; text: string }> {
  const response = await fetch(`${adminUrl}/upgrade`, { method: "POST" });
  const text = await response.text();
  const pid = /process (\d+); process/.exec(text)?.[1];
  if (pid !== undefined) endWithTest(t, pid);
  return { status: response.status, text };
}

function endWithTest(t: TestContext, pid: string | undefined): void {
  assert.ok(pid);
  t.after(() => {
    try {
      process.kill(Number(pid), "SIGKILL");
    } catch {
      // It has ended already.
    }
  });
}

async function start(
  t: TestContext,
  file: string,
  threads: number,
): Promise<{ gateway: GatewayProcess; url: string; adminUrl: string }> {
  const gateway = startGatewayProcess(t, ["-f", file], threads === 1 ? {} : { command: [newer ?? "", BUNDLE] });
  const url = `http://127.0.0.1:${await gateway.port()}`;
  return { gateway, url, adminUrl: await gateway.adminUrl() };
}

for (const threads of [1, 2]) {
  const named = threads === 1 ? "" : `${threads} threads: `;
  const skip = onLinux || (threads > 1 && newer === undefined && "needs Node 22.12 or the package node-linux-<arch>");

  test(`${named}200 streams and 100 sessions with calls: none is lost, and no connection is refused`, {
    skip,
  }, async (t) => {
    const remote = await startRemote("http");
    t.after(() => remote.close());
    // Each stream gets its next part when the test says so.
    const parts = new Set<() => void>();
    const backend = await backendFor(t, (_req, res) => {
      let sent = 0;
      res.writeHead(200, { "content-type": "text/plain" });
      const next = (): void => {
        sent += 1;
        res.write(`${sent};`);
        if (sent < CHUNKS) return;
        parts.delete(next);
        res.end();
      };
      parts.add(next);
      next();
    });
    const file = fileFor(t, {
      // The streams go on when the test says so, however slow the machine is.
      config: {
        workers: threads,
        adminAddr: "127.0.0.1:0",
        logging: { level: "info,access=off" },
        drainTimeout: "10m",
      },
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        { name: "tools", backends: [{ mcp: { targets: [{ name: "remote", mcp: { url: remote.url } }] } }] },
        { name: "streams", matches: [{ path: { exact: "/stream" } }], backends: [{ host: backend.host }] },
      ],
    });
    const { gateway, url, adminUrl } = await start(t, file, threads);

    const streams = Array.from({ length: STREAMS }, () => read(`${url}/stream`));
    const clients = await Promise.all(
      Array.from({ length: SESSIONS }, async () => {
        const client = rawClient(`${url}/mcp`);
        await client.initialize();
        return { client, id: client.sessionId };
      }),
    );
    await eventually("all streams are open", () => parts.size === STREAMS);

    let isOver = false;
    const problems: string[] = [];
    let calls = 0;
    const call = async (client: RawClient): Promise<void> => {
      try {
        const answer = await client.request("tools/list");
        calls += 1;
        if (answer.result === undefined) problems.push(JSON.stringify(answer));
      } catch (error) {
        problems.push(`${error} ${(error as Error).cause}`);
      }
    };
    const calling = (async () => {
      let looks = 0;
      for (let i = 0; !isOver; i = (i + CALLS_AT_ONCE) % SESSIONS) {
        await Promise.all(clients.slice(i, i + CALLS_AT_ONCE).map(({ client }) => call(client)));
        // All the time, but not as fast as it can: the new process needs the machine too.
        await eventually("some looks later", () => isOver || ++looks % LOOKS_BETWEEN_CALLS === 0);
      }
    })();
    let connections = 0;
    const connecting = (async () => {
      const port = Number(new URL(url).port);
      while (!isOver) {
        const until = calls + CALLS_AT_ONCE;
        await eventually("some more calls", () => calls >= until || isOver);
        await new Promise<void>((resolve) => {
          const socket = connect(port, "127.0.0.1", () => {
            connections += 1;
            socket.destroy();
            resolve();
          });
          socket.once("error", (error) => {
            problems.push(`connection: ${error.message}`);
            resolve();
          });
        });
      }
    })();

    const upgraded = await upgrade(t, adminUrl);
    assert.equal(upgraded.status, 200, upgraded.text);
    await gateway.logged("draining");
    const before = calls;
    await eventually("two calls of each session", () => calls >= before + 2 * SESSIONS);
    while (parts.size > 0) {
      for (const next of [...parts]) next();
      await turn();
    }
    const bodies = await Promise.all(streams);
    const code = await exitCode(gateway);
    isOver = true;
    await Promise.all([calling, connecting]);
    const whole = Array.from({ length: CHUNKS }, (_, i) => `${i + 1};`).join("");
    assert.equal(bodies.filter((body) => body === whole).length, STREAMS, "streams");
    assert.deepEqual([...new Set(problems)].slice(0, 5), [], `${problems.length} of ${calls} calls`);
    assert.equal(code, 0);
    assert.ok(connections > 0);
    for (const { client, id } of clients) {
      assert.equal(client.sessionId, id);
      assert.ok((await client.request("tools/list")).result);
    }
  });

  test(`${named}a new process that does not start changes nothing, and the answer says why`, { skip }, async (t) => {
    const remote = await startRemote("http");
    t.after(() => remote.close());
    const config = {
      config: { workers: threads, adminAddr: "127.0.0.1:0", store: { folder: "state" } },
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [{ name: "tools", backends: [{ mcp: { targets: [{ name: "remote", mcp: { url: remote.url } }] } }] }],
    };
    const file = fileFor(t, config);
    const { gateway, url, adminUrl } = await start(t, file, threads);
    const client = rawClient(`${url}/mcp`);
    await client.initialize();
    const port = await blockedPort(t);
    // The second listener cannot be opened: by then the new process has the store.
    const second = { ...config, gateways: { ...config.gateways, second: { port, address: "127.0.0.1" } } };
    writeFileSync(file, JSON.stringify(second));
    await gateway.logged("configuration rejected");
    const failed = await upgrade(t, adminUrl);
    assert.equal(failed.status, 500);
    assert.match(failed.text, /not upgraded, process \d+ continues: .*cannot listen on 127\.0\.0\.1:/);
    assert.ok((await client.request("tools/list")).result);
    const fresh = rawClient(`${url}/mcp`);
    await fresh.initialize();
    assert.equal(await fresh.delete(), 204);

    writeFileSync(file, JSON.stringify(config));
    const done = await upgrade(t, adminUrl);
    assert.equal(done.status, 200, done.text);
    assert.equal(await exitCode(gateway), 0);
    assert.ok((await client.request("tools/list")).result, "the session of the folder's store goes on");
    fresh.version = client.version;
    assert.equal((await fresh.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404, "what was ended stays so");
    assert.equal((await fetch(`${adminUrl}/healthz/ready`)).status, 200, "the new process has the admin address");
  });

  for (const way of ["SIGUSR2", "gwctl upgrade"]) {
    test(`${named}${way}: a limit of 100 of which 60 are used admits 40 more`, { skip }, async (t) => {
      const file = fileFor(t, {
        config: { workers: threads, adminAddr: "127.0.0.1:0", logging: { level: "info,access=off" } },
        gateways: { default: { port: 0, address: "127.0.0.1" } },
        routes: [
          {
            name: "limited",
            policies: {
              rateLimit: { local: [{ requests: 100, unit: "Hours", key: 'request.headers["x-user"]' }] },
              directResponse: { body: "ok" },
            },
          },
        ],
      });
      const { gateway, url, adminUrl } = await start(t, file, threads);
      const admitted = async (count: number, user: string): Promise<number> => {
        let ok = 0;
        for (let i = 0; i < count; i++)
          if ((await fetch(url, { headers: { "x-user": user, connection: "close" } })).status === 200) ok += 1;
        return ok;
      };
      assert.equal(await admitted(60, "ada"), 60);
      if (way === "SIGUSR2") gateway.child.kill("SIGUSR2");
      else {
        const said = await startGwctl(["upgrade", "--local", "-p", new URL(adminUrl).port]).result;
        assert.match(said.stdout, /^upgraded to version \S+, process \d+; process \d+ drains/, said.stderr);
      }
      const log = await gateway.logged("the new process serves");
      endWithTest(t, /the new process serves.*?pid=(\d+)/.exec(log)?.[1]);
      assert.equal(await exitCode(gateway), 0);
      const memory = (await (await fetch(`${adminUrl}/memory`)).json()) as { threads?: object[] };
      assert.equal(memory.threads?.length ?? 1, threads);
      assert.equal(await admitted(60, "ada"), 40);
      assert.equal(await admitted(1, "bob"), 1);
    });
  }
}

/** Its standard output stays open: the new process has it too. */
function exitCode({ child }: GatewayProcess): Promise<number | null> {
  return child.exitCode === null
    ? new Promise((resolve) => child.once("exit", (code) => resolve(code)))
    : Promise.resolve(child.exitCode);
}

async function blockedPort(t: TestContext): Promise<number> {
  const { createServer } = await import("node:net");
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

function read(url: string): Promise<string> {
  return new Promise((resolve) => {
    get(url, { agent: false }, (response) => {
      let text = "";
      response.on("data", (chunk: Buffer) => {
        text += chunk.toString();
      });
      response.on("close", () => resolve(text));
    }).on("error", (error) => resolve(error.message));
  });
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
