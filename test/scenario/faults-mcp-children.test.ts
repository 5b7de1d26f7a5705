/**
 * Child processes (rows V3 and R14 of the threat table): only the configuration starts them, and one that no longer
 * reads is not given more.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ADMIN_PATHS } from "../../src/admin/server/paths.ts";
import { type Answer, LEGACY_HEADERS, rawClient, readAnswer } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernRequest } from "../support/mcp/modern-client.ts";
import { childrenOf } from "../support/mcp/processes.ts";
import { gatewayFor } from "../support/scenario.ts";

const MARK = "started-by-a-request";
/** Admin endpoints that a POST is made for; they read nothing of the kind. */
const TAKE_POSTS = [
  ADMIN_PATHS.logging,
  ADMIN_PATHS.trace,
  ADMIN_PATHS.cel,
  ADMIN_PATHS.mcpTools,
  ADMIN_PATHS.mcpConnections,
];
const paths = [
  "/",
  "/mcp",
  "/mcp/test",
  "/mcp-rest/test/connection",
  "/sse",
  "/message",
  "/stdio?command=sh",
  "/tools/call",
  "/.well-known/oauth-protected-resource/mcp",
];

test("a command in a request, to whichever path and in whichever form, starts nothing [V3]", {
  skip: process.platform !== "linux" && "processes are counted in /proc",
}, async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()]));
  const file = join(gateway.folder, MARK);
  const stdio = { command: "sh", cmd: "sh", args: ["-c", `touch ${file}; sleep 60`, MARK], env: { PATH: "/bin" } };
  const forms: object[] = [
    stdio,
    { stdio, transport: "stdio" },
    { name: "x", targets: [{ name: "x", stdio }], mcpServers: { x: stdio } },
    { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo", arguments: stdio, ...stdio } },
    { jsonrpc: "2.0", id: 1, method: "initialize", params: { ...initialize, ...stdio, _meta: stdio } },
  ];
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const before = otherChildren();

  for (const form of forms) {
    const admin = [...Object.values(ADMIN_PATHS).filter((path) => path !== ADMIN_PATHS.quit), ...paths];
    for (const url of [...paths.map((path) => gateway.url() + path), ...admin.map((path) => gateway.adminUrl + path)]) {
      const response = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
        body: JSON.stringify(form),
        signal: AbortSignal.timeout(30_000),
      });
      await response.body?.cancel();
      const mayAnswer =
        ("method" in form && /\/(?:mcp|sse)$/.test(url)) || TAKE_POSTS.some((path) => url.endsWith(path));
      assert.ok(response.status >= 400 || mayAnswer, `${url}: ${response.status}`);
    }
  }
  const inSession = await client.call("echo", { message: "hi", ...stdio });
  assert.equal(inSession.result.content[0].text, "hi");
  assert.deepEqual(childrenOf(process.pid, MARK), []);
  assert.equal(existsSync(file), false);
  assert.equal(otherChildren(), before);

  const control = spawn(process.execPath, ["-e", "setInterval(() => undefined, 1000)", MARK]);
  await once(control, "spawn");
  assert.equal(childrenOf(process.pid, MARK).length, 1, "a process would have been seen");
  control.kill("SIGKILL");
  await once(control, "close");
});

/** The configured server may be started for an `initialize` that is among the forms, and a rehearsal is asked for too. */
function otherChildren(): number {
  const known = ["odd-server", "rehearsal-process"].map((command) => childrenOf(process.pid, command).length);
  return known.reduce((others, count) => others - count, childrenOf(process.pid, "").length);
}

const initialize = {
  protocolVersion: "2025-11-25",
  capabilities: {},
  clientInfo: { name: "test", version: "1" },
};

/** Enough for its pipe, the 4 MiB that may wait, and one more. */
const LARGE_CALLS = 8;

test("a server that reads nothing is given no more: further calls are refused, in a session and with 503 without [R14]", {
  timeout: 600_000,
}, async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()]));
  const url = `${gateway.url()}/mcp`;
  const stop = new AbortController();
  t.after(() => stop.abort());
  const large = { name: "echo", arguments: { message: "x".repeat(1_000_000) } };
  const small = { name: "echo", arguments: { message: "x" } };
  const post = (body: string, headers: Record<string, string>): Promise<Answer> =>
    fetch(url, { method: "POST", headers, body, signal: stop.signal }).then(readAnswer);

  const client = rawClient(url);
  await client.initialize();
  const inSession = (params: object): Promise<Answer> =>
    post(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }), {
      ...LEGACY_HEADERS,
      "mcp-session-id": client.sessionId ?? "",
      "mcp-protocol-version": client.version,
    });
  const withoutSession = (params: Record<string, unknown>): Promise<Answer> => {
    const { body, headers } = modernRequest("tools/call", params);
    return post(body, headers);
  };

  for (const [call, status] of [[inSession, 200] as const, [withoutSession, 503] as const]) {
    assert.match((await call({ name: "deaf" })).text, /what\?/);
    const waiting = Array.from({ length: LARGE_CALLS }, () => call(large));
    for (const one of waiting) one.catch(() => undefined);
    const refused = await Promise.race(waiting);
    for (const answer of [refused, await call(small)]) {
      assert.equal(answer.status, status);
      assert.deepEqual(answer.message.error, { code: -32603, message: 'target "odd" does not read its input' });
    }
  }

  const other = rawClient(url);
  await other.initialize();
  assert.equal((await other.call("echo", { message: "I listen" })).result.content[0].text, "I listen");
});
