/**
 * The workloads and gateway configurations that all comparisons share, so that rows with the same name measure the
 * same work.
 */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { makeCalls } from "../mcp/calls.mjs";
import { httpRequest, sendLoad } from "./load.mjs";
import { freePort, start } from "./process.mjs";
import { isWanted } from "./rows.mjs";
import { readStepped, startStepped, steppedGet } from "./stepped.mjs";

const bench = join(dirname(fileURLToPath(import.meta.url)), "..");
export const CHAT_PATH = "/v1/chat/completions";

/** The programs behind the contestants. The MCP server is a child of each. */
const BACKEND = join(bench, "http/backend.mjs");
export const PROVIDER = join(bench, "llm/provider.mjs");
export const ECHO = [process.execPath, join(bench, "mcp/echo-server.mjs")];

/** After 900 streams V8 still compiled: a fifth of the CPU of a measured round was its compiler's. */
const STREAMS_WARM_UP = 3000;

const bearer = (chars) => ({ authorization: `Bearer ${"b".repeat(chars)}` });

function chat(stream, user) {
  const messages = [{ role: "user", content: "word ".repeat(130) }];
  return JSON.stringify({ model: "small", ...(stream ? { stream: true } : {}), ...(user ? { user } : {}), messages });
}

const chatRequest = (body) => httpRequest({ method: "POST", path: CHAT_PATH, body, headers: bearer(160) });

function load(request, connections) {
  return ({ port }, count) => sendLoad({ port, request, count, connections });
}

function calls(inFlight) {
  return ({ port, sessions }, count) =>
    makeCalls({ port, sessions: sessions.slice(0, 1), connections: inFlight, count });
}

const GET_REQUEST = httpRequest({ headers: bearer(600) });
const CHAT_REQUEST = chatRequest(chat(false));

/** `of`: the kind of backend. `perRound` and `warmUp` count requests. */
export const WORKLOADS = [
  {
    of: "http",
    title: "GET, 320 B response",
    request: GET_REQUEST,
    run: load(GET_REQUEST, 32),
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
    request: CHAT_REQUEST,
    run: load(CHAT_REQUEST, 32),
    perRound: 3000,
    warmUp: 20_000,
  },
  {
    of: "llm",
    title: "LLM stream of 100 chunks, 60 at once",
    run: load(chatRequest(chat(true)), 60),
    perRound: 180,
    warmUp: STREAMS_WARM_UP,
  },
  {
    of: "http",
    isStepped: true,
    title: "stream of 100 chunks, each passed on before the next, 60 at once",
    run: ({ port }, count) => readStepped({ port, count, request: steppedGet(bearer(600)) }),
    perRound: 240,
    warmUp: STREAMS_WARM_UP,
  },
  {
    of: "llm",
    isStepped: true,
    title: "LLM stream of 100 chunks, each passed on before the next, 60 at once",
    run: ({ port }, count) => readStepped({ port, count, request: (user) => chatRequest(chat(true, user)) }),
    perRound: 240,
    warmUp: STREAMS_WARM_UP,
  },
  { of: "mcp", title: "MCP tools/call, 1 in flight", run: calls(1), perRound: 1500, warmUp: 20_000 },
  { of: "mcp", title: "MCP tools/call, 32 in flight", run: calls(32), perRound: 3000, warmUp: 8000 },
];

/** What is compared in one go: the rows of one kind of backend. */
export const GROUPS = [
  { of: "http", isStepped: false },
  { of: "llm", isStepped: false },
  { of: "http", isStepped: true },
  { of: "llm", isStepped: true },
  { of: "mcp", isStepped: false },
];

export function workloadsOf(group) {
  return WORKLOADS.filter(
    (one) => one.of === group.of && (one.isStepped ?? false) === group.isStepped && isWanted(one.title),
  );
}

/** The backend of a group; that of `mcp` is a child of each contestant. */
export async function startBackend({ of, isStepped }) {
  if (isStepped) return startStepped();
  const port = await freePort();
  if (of === "mcp") return { port, stop: async () => undefined };
  return start(process.execPath, [of === "http" ? BACKEND : PROVIDER, String(port)], port);
}

/** The gateway in front of each kind of backend. `policies` belong to the route, `config` to the process. */
export function gatewayConfig(of, port, backendPort, { policies, config } = {}) {
  const backend = {
    http: { host: `127.0.0.1:${backendPort}` },
    llm: { ai: { provider: { openAI: {} }, auth: { key: "k" }, hostOverride: `127.0.0.1:${backendPort}` } },
    mcp: { mcp: { targets: [{ name: "echo", stdio: { cmd: ECHO[0], args: ECHO.slice(1) } }] } },
  }[of];
  return JSON.stringify({
    config: { adminAddr: "off", logging: { level: "info,access=off" }, ...config },
    gateways: { default: { port, address: "127.0.0.1" } },
    routes: [{ backends: [backend], ...(policies ? { policies } : {}) }],
  });
}
