/**
 * Very large results of MCP servers (row R34 of the threat table): they arrive whole, and the loop keeps turning for
 * everybody else. The gateway has a process of its own here, so that nothing but its own work is in its turns.
 */
import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { oddTarget } from "../support/mcp/gateway-config.ts";
import { longestTurnMs, turnsOf, WATCHED_TURNS } from "../support/process-turns.ts";

const MAX_TURN_MS = 50;
const BYTES = 8 * 1024 * 1024;
/** As many names as one object may have. */
const NAMES_BYTES = 2 * 1024 * 1024;

const forms: [name: string, open: string, unit: string, close: string][] = [
  ["one string", '"', "xxxxxxxxxxxxxxxx", '"'],
  ["one string that is not ASCII", '"', "é漢🙂", '"'],
  ["escapes", '"', "\\n\\u00e9", '"'],
  ["small numbers", "[", "1,", "1]"],
  ["small objects", "[", '{"a":1},', "{}]"],
  ["names", "{", '"k#":1,', '"k":1}'],
  ["texts that a guard masks", "[", '"me@example.org or ab12",', '""]'],
];

/** Of one server's list; each is looked at several times on its way. */
const LISTED = 5_000;
const lists: { path: string; mcp: object; policies?: object }[] = [
  { path: "/list", mcp: { targets: [oddTarget("one", `--tools=${LISTED}`)] } },
  { path: "/lists", mcp: { targets: [oddTarget("one", `--tools=${LISTED}`), oddTarget("two", `--tools=${LISTED}`)] } },
  {
    path: "/filtered",
    mcp: { targets: [{ ...oddTarget("one", `--tools=${LISTED}`), tools: { deny: ["echo"] } }] },
    policies: { mcpAuthorization: { rules: ['mcp.tool.name != "crash"'] } },
  },
];

const tools = [
  { path: "/plain", settings: {}, bytes: BYTES },
  {
    path: "/guarded",
    settings: { tools: { resultGuard: [{ regex: { action: "mask", rules: [{ builtin: "email" }] } }] } },
    bytes: 1024 * 1024,
  },
];

test(`results of ${BYTES >> 20} MiB and lists of ${LISTED} tools do not hold the loop for ${MAX_TURN_MS} ms [R34]`, {
  timeout: 600_000,
}, async (t) => {
  const routes = tools.map(({ path, settings }) => ({
    matches: [{ path: { exact: path } }],
    backends: [{ mcp: { targets: [{ ...oddTarget(), ...settings }] } }],
  }));
  const listRoutes = lists.map(({ path, mcp, policies = {} }) => ({
    matches: [{ path: { exact: path } }],
    backends: [{ mcp }],
    policies,
  }));
  const yaml = JSON.stringify({
    config: { adminAddr: "off" },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [...routes, ...listRoutes],
  });
  const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], {
    compiled: true,
    nodeFlags: WATCHED_TURNS,
  });
  const port = await gateway.port();
  const watch = turnsOf(gateway);
  for (const { path, bytes } of tools) {
    const session = await open(port, path);
    for (const [name, start, unit, close] of forms) {
      const size = unit.includes("#") ? Math.min(bytes, NAMES_BYTES) : bytes;
      const call = { name: "huge", arguments: { open: start, unit, close, bytes: size } };
      const longestMs = await longestTurnMs(watch, MAX_TURN_MS, async () => {
        const received = await post(port, path, session, { id: 1, method: "tools/call", params: call });
        assert.ok(received.bytes > size || path === "/guarded", `${path}, ${name}: ${received.text}`);
        assert.match(received.text, /"id":1,"result":\{"content":\[\]/);
      });
      assert.ok(longestMs < MAX_TURN_MS, `${path}, ${name}: ${longestMs} ms`);
    }
  }
  for (const { path } of lists) {
    const session = await open(port, path);
    const longestMs = await longestTurnMs(watch, MAX_TURN_MS, async () => {
      const received = await post(port, path, session, { id: 1, method: "tools/list", params: {} });
      assert.ok(received.bytes > LISTED * 60, `${path}: ${received.text}`);
    });
    assert.ok(longestMs < MAX_TURN_MS, `${path}: ${longestMs} ms`);
  }
});

async function open(port: number, path: string): Promise<string> {
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "c", version: "1" } };
  const { session } = await post(port, path, undefined, { id: 0, method: "initialize", params });
  assert.ok(session);
  return session;
}

interface Received {
  readonly session: string | undefined;
  readonly bytes: number;
  /** Its beginning. */
  readonly text: string;
}

function post(port: number, path: string, session: string | undefined, message: object): Promise<Received> {
  return new Promise((resolve, reject) => {
    const headers = {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(session === undefined ? {} : { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" }),
    };
    const outgoing = request({ port, host: "127.0.0.1", path, method: "POST", headers }, (res) => {
      let bytes = 0;
      let text = "";
      res.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (text.length < 1_000) text += chunk.toString("utf8", 0, 1_000);
      });
      res.on("error", reject);
      res.on("end", () => resolve({ session: res.headers["mcp-session-id"] as string | undefined, bytes, text }));
    });
    outgoing.once("error", reject);
    outgoing.end(JSON.stringify({ jsonrpc: "2.0", ...message }));
  });
}
