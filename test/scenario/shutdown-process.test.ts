/**
 * The end of the process: nobody's request is dropped, ports that cannot be had are named, and
 * a log that nobody reads does not matter.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/free-port.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor } from "../support/scenario.ts";

function configFile(t: TestContext, text: string): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-test-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "config.yaml");
  writeFileSync(file, text);
  return file;
}

const proxy = (host: string, config = "adminAddr: off"): string =>
  `config: { ${config} }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: [{ host: "${host}" }] }]\n`;

function get(port: number, path: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) =>
    request({ port, host: "127.0.0.1", path, agent: false }, resolve).once("error", reject).end(),
  );
}

/** Rejects when the answer does not end cleanly. */
async function textOf(response: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of response) text += String(part);
  return text;
}

test("200 streams and 200 requests in flight survive a SIGTERM to their end, then the exit code is 0 [R27]", async (t) => {
  const held: ServerResponse[] = [];
  const backend = await backendFor(t, (req, res) => {
    if (req.url === "/stream") {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write("data: first\n\n");
    }
    held.push(res);
  });
  backend.server.maxConnections = 1000;
  const gateway = startGatewayProcess(t, ["-f", configFile(t, proxy(backend.host))]);
  const port = await gateway.port();
  const streams = await Promise.all(Array.from({ length: 200 }, () => get(port, "/stream")));
  const requests = Array.from({ length: 200 }, () => get(port, "/request"));
  await eventually("all are at the backend", () => held.length === 400);

  gateway.child.kill("SIGTERM");
  await gateway.logged("draining");
  await assert.rejects(get(port, "/new"), "nothing new is accepted");
  for (const res of held) res.end(res.headersSent ? "data: last\n\n" : "done");
  assert.ok((await Promise.all(streams.map(textOf))).every((text) => text === "data: first\n\ndata: last\n\n"));
  assert.ok((await Promise.all(requests.map(async (answer) => textOf(await answer)))).every((text) => text === "done"));
  const exit = await gateway.exited;
  assert.deepEqual([exit.code, exit.stderr], [0, ""]);
  assert.equal(exit.stdout.split("status=200").length - 1, 400, "every request has its line in the log");
});

test("at the drain limit event streams end cleanly, unfinished answers are cut, and the exit code is 0 [R27]", async (t) => {
  const backend = await backendFor(t, (req, res) => {
    if (req.url === "/stream") res.writeHead(200, { "content-type": "text/event-stream" });
    res.write("data: first\n\n");
  });
  const gateway = startGatewayProcess(t, [
    "-f",
    configFile(t, proxy(backend.host, "adminAddr: off, drainTimeout: 300ms")),
  ]);
  const port = await gateway.port();
  const stream = await get(port, "/stream");
  const download = await get(port, "/download");
  gateway.child.kill("SIGTERM");
  assert.equal(await textOf(stream), "data: first\n\n");
  await assert.rejects(textOf(download), "half a download must not look whole");
  assert.equal((await gateway.exited).code, 0);
});

test("a second signal ends it at once [R27]", async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.write("begun"));
  const gateway = startGatewayProcess(t, [
    "-f",
    configFile(t, proxy(backend.host, "adminAddr: off, drainTimeout: 10m")),
  ]);
  const answer = await get(await gateway.port(), "/");
  gateway.child.kill("SIGTERM");
  await gateway.logged("draining");
  gateway.child.kill("SIGINT");
  await assert.rejects(textOf(answer));
  assert.equal((await gateway.exited).code, 0);
});

test("POST /quitquitquit answers, then shuts down like a signal [R28] [S4.2-9]", async (t) => {
  const held: ServerResponse[] = [];
  const backend = await backendFor(t, (_req, res) => void held.push(res));
  const gateway = startGatewayProcess(t, ["-f", configFile(t, proxy(backend.host, "adminAddr: 127.0.0.1:0"))]);
  const answer = get(await gateway.port(), "/");
  const admin = await gateway.adminUrl();
  await eventually("the backend was asked", () => held.length === 1);
  const quit = await fetch(`${admin}/quitquitquit`, { method: "POST" });
  assert.deepEqual([quit.status, await quit.text()], [200, "shutting down\n"]);
  held[0]?.end("finished");
  assert.equal(await textOf(await answer), "finished");
  assert.equal((await gateway.exited).code, 0);
});

test("a port in use is one line that names address and field, and exit 1 [R39]", async (t) => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  t.after(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const file = configFile(t, `config: { adminAddr: off }\ngateways: { web: { port: ${port}, address: 127.0.0.1 } }\n`);
  const listener = await startGatewayProcess(t, ["-f", file]).exited;
  const why =
    "the address is already in use: stop the program that listens there (another gateway?) or choose another one";
  assert.deepEqual(
    [listener.code, listener.stderr],
    [1, `${file}:2:26: gateways.web.port: cannot listen on 127.0.0.1:${port}: ${why}\n`],
  );
  const taking = configFile(t, `config: { adminAddr: "127.0.0.1:${port}" }\n`);
  const admin = await startGatewayProcess(t, ["-f", taking]).exited;
  assert.deepEqual(
    [admin.code, admin.stderr],
    [1, `${taking}:1:22: config.adminAddr: cannot listen on 127.0.0.1:${port}: ${why}\n`],
  );
});

test("an address that the machine does not have is one line that names it, and exit 1 [R39]", async (t) => {
  const file = configFile(t, "config: { adminAddr: off }\ngateways: { web: { port: 0, address: 203.0.113.1 } }\n");
  const exit = await startGatewayProcess(t, ["-f", file]).exited;
  assert.equal(exit.code, 1);
  assert.match(exit.stderr, /^[^\n]*gateways\.web\.[a-z]+: cannot listen on 203\.0\.113\.1[^\n]*\n$/);
});

test("a port that is not permitted says why", {
  skip: process.getuid?.() === 0 && "root may bind every port",
}, async (t) => {
  const exit = await startGatewayProcess(t, [
    "-f",
    configFile(t, "config: { adminAddr: off }\ngateways: { web: { port: 80, address: 127.0.0.1 } }\n"),
  ]).exited;
  assert.equal(exit.code, 1);
  assert.match(
    exit.stderr,
    /: gateways\.web\.port: cannot listen on 127\.0\.0\.1:80: permission denied \(ports below 1024 need privileges\)\n$/,
  );
});

test("a reader of the log that goes away does not end the gateway [R40]", async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("ok"));
  const gateway = startGatewayProcess(t, ["-f", configFile(t, proxy(backend.host))]);
  const port = await gateway.port();
  gateway.child.stdout?.destroy();
  for (let i = 0; i < 100; i++) assert.equal(await textOf(await get(port, "/")), "ok");
  gateway.child.kill("SIGTERM");
  assert.equal((await gateway.exited).code, 0);
});

test("a reader of the log that stops reading keeps neither requests nor the end waiting [R40]", async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("ok"));
  const gateway = startGatewayProcess(t, ["-f", configFile(t, proxy(backend.host))]);
  const port = await gateway.port();
  gateway.child.stdout?.pause();
  const path = `/${"long".repeat(1000)}`;
  for (let i = 0; i < 200; i++) assert.equal(await textOf(await get(port, path)), "ok");
  gateway.child.kill("SIGTERM");
  const ended = new Promise((resolve) => gateway.child.once("exit", resolve));
  assert.equal(await ended, 0);
});

test("a full disk behind the log does not end the gateway [R40]", {
  skip: process.platform !== "linux" && "/dev/full is Linux",
}, async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("ok"));
  const port = await freePort();
  const yaml = proxy(backend.host).replace("port: 0", `port: ${port}`);
  const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], { stdout: openSync("/dev/full", "w") });
  await eventually("it listens", async () =>
    get(port, "/")
      .then(textOf)
      .then(
        (text) => text === "ok",
        () => false,
      ),
  );
  for (let i = 0; i < 20; i++) assert.equal(await textOf(await get(port, "/")), "ok");
  gateway.child.kill("SIGTERM");
  assert.equal((await gateway.exited).code, 0);
});

test("after SIGTERM a kept connection serves one more request and then closes", async (t) => {
  const backend = await backendFor(t, (_req, res) => res.end("ok"));
  const gateway = startGatewayProcess(t, ["-f", configFile(t, proxy(backend.host))]);
  const client = openRawClient(await gateway.port());
  t.after(() => client.close());
  client.write("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
  await client.until("ok");
  gateway.child.kill("SIGTERM");
  await gateway.logged("draining");
  client.write("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
  const { statuses, text } = await client.ended();
  assert.deepEqual(statuses, [200, 200]);
  assert.equal(text.split(/connection: close/i).length, 2, "only the last response closes");
  assert.equal((await gateway.exited).code, 0);
});

test("a second SIGTERM exits immediately and leaves no child behind", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-test-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const pidFile = join(folder, "pid");
  // It ignores the end of its input and SIGTERM.
  const program = `trap "" TERM; echo $$ > ${pidFile}.new; mv ${pidFile}.new ${pidFile}; while :; do sleep 1; done`;
  const target = `{ name: stubborn, stdio: { cmd: sh, args: [-c, ${JSON.stringify(program)}] } }`;
  const yaml = `config: { adminAddr: off }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: [{ mcp: { targets: [${target}] } }] }]\n`;
  const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)]);
  const client = openRawClient(await gateway.port());
  t.after(() => client.close());
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  });
  client.write(
    `POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  await eventually("the child runs", () => existsSync(pidFile));
  const pid = Number(readFileSync(pidFile, "utf8"));
  gateway.child.kill("SIGTERM");
  await gateway.logged("draining");
  gateway.child.kill("SIGTERM");
  assert.equal((await gateway.exited).code, 0);
  await eventually("the child is gone", () => !isRunning(pid));
});

/** A zombie counts as ended: whether it is reaped is up to the system. */
function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "")[0] !== "Z";
  } catch {
    return process.platform !== "linux";
  }
}
