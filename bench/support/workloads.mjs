/**
 * The rows that builds and peers are compared by, and the configurations of the gateway behind them. One place, so that a row of
 * one table is the same work as the row of that name in another.
 */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { makeCalls } from "../mcp/calls.mjs";
import { httpRequest, sendLoad } from "./load.mjs";

const bench = join(dirname(fileURLToPath(import.meta.url)), "..");
export const CHAT_PATH = "/v1/chat/completions";

/** The programs behind the contestants. The MCP server is a child of each. */
export const BACKEND = join(bench, "http/backend.mjs");
export const PROVIDER = join(bench, "llm/provider.mjs");
export const ECHO = [process.execPath, join(bench, "mcp/echo-server.mjs")];

/** After 900 streams V8 still compiled: a fifth of the CPU of a measured round was its compiler's. */
const STREAMS_WARM_UP = 3000;

const bearer = (chars) => ({ authorization: `Bearer ${"b".repeat(chars)}` });

function chat(stream) {
  const messages = [{ role: "user", content: "word ".repeat(130) }];
  return JSON.stringify({ model: "small", ...(stream ? { stream: true } : {}), messages });
}

function load(request, connections) {
  return ({ port }, count) => sendLoad({ port, request, count, connections });
}

function calls(inFlight) {
  return ({ port, sessions }, count) =>
    makeCalls({ port, sessions: sessions.slice(0, 1), connections: inFlight, count });
}

/** `of`: the kind of backend. `perRound` and `warmUp` count requests. */
export const WORKLOADS = [
  {
    of: "http",
    title: "GET, 320 B answer",
    run: load(httpRequest({ headers: bearer(600) }), 32),
    perRound: 4000,
    warmUp: 20_000,
  },
  {
    of: "http",
    title: "POST 1 KB",
    run: load(httpRequest({ method: "POST", body: "a".repeat(1024), headers: bearer(600) }), 32),
    perRound: 4000,
    warmUp: 20_000,
  },
  {
    of: "http",
    title: "stream of 100 chunks, 60 at once",
    run: load(httpRequest({ path: "/stream", headers: bearer(600) }), 60),
    perRound: 180,
    warmUp: STREAMS_WARM_UP,
  },
  {
    of: "llm",
    title: "chat JSON, 1 KB",
    run: load(httpRequest({ method: "POST", path: CHAT_PATH, body: chat(false), headers: bearer(160) }), 32),
    perRound: 3000,
    warmUp: 20_000,
  },
  {
    of: "llm",
    title: "LLM stream of 100 chunks, 60 at once",
    run: load(httpRequest({ method: "POST", path: CHAT_PATH, body: chat(true), headers: bearer(160) }), 60),
    perRound: 180,
    warmUp: STREAMS_WARM_UP,
  },
  { of: "mcp", title: "MCP tools/call, 1 in flight", run: calls(1), perRound: 1500, warmUp: 20_000 },
  { of: "mcp", title: "MCP tools/call, 32 in flight", run: calls(32), perRound: 3000, warmUp: 8000 },
];

/** The gateway in front of each kind of backend; `policies` belong to the route. */
export function gatewayConfig(of, port, backendPort, policies) {
  const backend = {
    http: { host: `127.0.0.1:${backendPort}` },
    llm: { ai: { provider: { openAI: {} }, auth: { key: "k" }, hostOverride: `127.0.0.1:${backendPort}` } },
    mcp: { mcp: { targets: [{ name: "echo", stdio: { cmd: ECHO[0], args: ECHO.slice(1) } }] } },
  }[of];
  return JSON.stringify({
    config: { adminAddr: "off", logging: { level: "info,access=off" } },
    gateways: { default: { port, address: "127.0.0.1" } },
    routes: [{ backends: [backend], ...(policies ? { policies } : {}) }],
  });
}
