/**
 * The trace tells what went over the wire (spec 6): `final request` is the request as sent, `raw response` the head as
 * received. Recorders between the gateway and every kind of server keep the raw bytes; each snapshot must be among them.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { createRedaction } from "../../src/record/trace/redact.ts";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { DEMO_SERVER } from "../support/identity/protected-gateway.ts";
import { DIALECT_CALLS, PROVIDERS } from "../support/llm/dialect-calls.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";
import { rawClient } from "../support/mcp/client.ts";
import { type RemoteFixture, startRemote } from "../support/mcp/http-server.ts";
import { modernRequest } from "../support/mcp/modern-client.ts";
import { type RecordingServer, startRecordingServer } from "../support/mcp/recording-server.ts";
import { openRawClient } from "../support/raw-client.ts";
import { armTrace, messagesOf } from "../support/trace.ts";
import { startWireRecorder, type WireRecorder } from "../support/wire-recorder.ts";
import { compareWithWire } from "../support/wire-truth.ts";

const REMOTE_KEY = "remote-key-0123456789";
const redaction = createRedaction();
redaction.hideAlso({ headers: ["x-remote-key"], parameters: ["token"] });

/** Passes everything on to the program in its arguments, and writes it down first. */
const TEE = `
const [file, command, ...args] = process.argv.slice(1);
const child = require("node:child_process").spawn(command, args, { stdio: ["pipe", "inherit", "inherit"] });
process.stdin.on("data", (chunk) => { require("node:fs").appendFileSync(file, chunk); child.stdin.write(chunk); });
process.stdin.on("end", () => child.stdin.end());
child.on("exit", (code) => process.exit(code ?? 1));
`;

const open: { close(): Promise<unknown> }[] = [];
let folder: string;
let linesFile: string;
let backend: TestBackend;
let upstream: TestUpstream;
let remote: RemoteFixture;
let old: RemoteFixture;
let modern: RecordingServer;
let gateway: TestGateway;
const recorders: WireRecorder[] = [];
let askedTimes = 0;

async function record(server: string): Promise<string> {
  const recorder = await startWireRecorder(server);
  recorders.push(recorder);
  return recorder.host;
}

async function opened<Closable extends { close(): Promise<unknown> }>(starting: Promise<Closable>): Promise<Closable> {
  const one = await starting;
  open.push(one);
  return one;
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "wire-truth-"));
  linesFile = join(folder, "lines");
  writeFileSync(linesFile, "");
  backend = await opened(
    startBackend((req, res) => {
      askedTimes += 1;
      req.resume();
      const status = req.url === "/host/retried" && askedTimes % 2 === 1 ? 503 : 200;
      req.on("end", () => res.writeHead(status, { "x-from": "backend", "set-cookie": "a=b" }).end("ok"));
    }),
  );
  backend.server.on("upgrade", (_req, socket) => {
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    );
    socket.on("data", () => socket.end());
  });
  upstream = await opened(startUpstream());
  remote = await opened(startRemote("http"));
  old = await opened(startRemote("sse"));
  modern = await opened(startRecordingServer("modern"));
  const host = await record(backend.host);
  const llm = await record(upstream.host);
  const through = async (url: string): Promise<string> => {
    const { host: server, pathname } = new URL(url);
    return `{ url: "http://${await record(server)}${pathname}?token=url-token-012345", headers: { x-remote-key: ${REMOTE_KEY} } }`;
  };
  const targets = {
    legacy: `{ name: legacy, mcp: ${await through(remote.url)} }`,
    modern: `{ name: modern, mcp: ${await through(modern.url)} }`,
    old: `{ name: old, sse: ${await through(old.url)} }`,
    stdio: `{ name: stdio, stdio: { cmd: ${JSON.stringify(process.execPath)}, args: ${JSON.stringify(["-e", TEE, linesFile, process.execPath, DEMO_SERVER])} } }`,
  };
  const route = (path: string, backends: string): string =>
    `  - { matches: [{ path: { pathPrefix: /${path} } }], backends: [${backends}] }\n`;
  gateway = await opened(
    startGateway(`
gateways: { default: { port: 0 } }
routes:
  - matches: [{ path: { pathPrefix: /host } }]
    backends: [{ host: "${host}" }]
    policies: { transformations: { request: { set: { x-copy: 'request.headers["authorization"]', x-token: '"t " + request.headers["authorization"].substring(7)' } } } }
  - matches: [{ path: { exact: /host/retried } }]
    backends: [{ host: "${host}" }]
    policies: { retry: { attempts: 1, backoff: 1ms, codes: [503] } }
${PROVIDERS.map(({ name, provider, auth }) => route(name, `{ ai: { provider: ${provider}, auth: ${auth}, hostOverride: "${llm}" } }`)).join("")}
${route("failover", `{ ai: { groups: [{ providers: [{ name: a, provider: { openAI: { model: fail-503 } }, auth: { key: key-of-a-12345 }, hostOverride: "${llm}" }] }, { providers: [{ name: b, provider: { anthropic: { model: claude-b } }, auth: { key: key-of-b-12345 }, hostOverride: "${llm}" }] }] } }`)}
${Object.entries(targets)
  .map(([name, target]) => route(`mcp-${name}`, `{ mcp: { targets: [${target}] } }`))
  .join("")}
${route("mcp-all", `{ mcp: { targets: [${Object.values(targets).join(", ")}] } }`)}
`),
  );
});
after(async () => {
  for (const one of open.reverse()) await one.close();
  for (const recorder of recorders) await recorder.close();
  rmSync(folder, { recursive: true, force: true });
});

let looks = 0;
let snapshots = 0;

/**
 * Sends a traced request and compares; `requests` is how many messages must have gone to servers. A notification gets
 * its response at once, so its trace may end before the gateway has a connection to each server.
 */
async function truth(
  name: string,
  requests: number,
  send: (id: string) => Promise<unknown>,
  { isNotification = false } = {},
): Promise<void> {
  const id = `wire-${++looks}`;
  const before = recorders.map((recorder) => new Set(recorder.exchanges().map(({ key }) => key)));
  const linesBefore = readFileSync(linesFile, "utf8").split("\n").length - 1;
  const received = (): number =>
    readFileSync(linesFile, "utf8").split("\n").length -
    1 +
    recorders.reduce((sum, recorder) => sum + recorder.exchanges().length, 0);
  const receivedBefore = received();
  const trace = await armTrace(
    gateway,
    `?expression=${encodeURIComponent(`request.headers["x-request-id"] == "${id}"`)}`,
  );
  await send(id);
  const events = await trace.events;
  const exchanges = recorders.flatMap((recorder, i) => recorder.exchanges().filter(({ key }) => !before[i]?.has(key)));
  const compare = () => {
    const lines = readFileSync(linesFile, "utf8").split("\n").slice(linesBefore, -1);
    return compareWithWire(events, { exchanges, lines }, redaction);
  };
  let compared = compare();
  // Nothing answers a notification: the program that writes its lines down may still be about to.
  await eventually("each line was written down", () => {
    compared = compare();
    return !compared.differences.some((one) => one.startsWith("no such line"));
  });
  assert.deepEqual(compared.differences, [], `${name}\n${compared.differences.join("\n")}`);
  const calls = messagesOf(events, "backendCallStart").length;
  assert.equal(calls, compared.requests, `${name}: ${JSON.stringify(messagesOf(events, "requestSnapshot").at(-1))}`);
  if (!isNotification) assert.equal(compared.requests, requests, name);
  else {
    assert.ok(compared.requests <= requests, name);
    await eventually("each server has the notification", () => received() - receivedBefore >= requests);
  }
  const text = JSON.stringify(events);
  for (const secret of [REMOTE_KEY, "url-token-012345", "client-secret-1", ...KEYS])
    assert.ok(!text.includes(secret), `${name} shows ${secret}`);
  snapshots += compared.requests + compared.responses;
}

const KEYS = PROVIDERS.flatMap(({ auth }) => /key: (\S+)/.exec(auth)?.[1] ?? ["wJalrXUtnFEMI", "aSessionToken1"]);
const auth = { authorization: "Bearer client-secret-1" };
const post = (path: string, id: string, body: string | Buffer, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url()}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...auth, "x-request-id": id, ...headers },
    body: typeof body === "string" ? body : new Uint8Array(body),
  }).then(async (response) => ({ status: response.status, text: await response.text() }));

test("a plain HTTP backend: without a body, with one, in chunks, retried, upgraded", async () => {
  await truth("GET", 1, (id) =>
    fetch(`${gateway.url()}/host/a?key=k1&b=2`, { headers: { ...auth, "x-request-id": id } }).then((r) => r.text()),
  );
  await truth("POST", 1, (id) => post("/host/b", id, '{"password":"p4ss","b":1}'));
  await truth("large", 1, (id) => post("/host/c", id, Buffer.alloc(200_000, "x"), { "content-type": "text/plain" }));
  await truth("chunks", 1, async (id) => {
    const raw = openRawClient(gateway.port());
    raw.write(
      `POST /host/d HTTP/1.1\r\nhost: a.test\r\nx-request-id: ${id}\r\nauthorization: Bearer client-secret-1\r\ntransfer-encoding: chunked\r\nconnection: close, x-hop\r\nx-hop: 1\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
    );
    await raw.ended();
  });
  await truth("retried", 2, (id) =>
    fetch(`${gateway.url()}/host/retried`, { headers: { "x-request-id": id } }).then((r) => r.text()),
  );
  await truth("upgrade", 1, async (id) => {
    const raw = openRawClient(gateway.port());
    raw.write(
      `GET /host/ws HTTP/1.1\r\nhost: a.test\r\nx-request-id: ${id}\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n`,
    );
    await raw.until("101");
    raw.write("bye");
    await raw.ended();
  });
});

test("every client dialect at every provider that takes it, signed requests included", async (t: TestContext) => {
  let pairs = 0;
  let refused = 0;
  for (const { name, model } of PROVIDERS) {
    for (const call of DIALECT_CALLS) {
      const body = JSON.stringify(call.body(model));
      const path = `/${name}${call.path(model)}`;
      const probe = await post(path, `probe-${name}`, body);
      // By the dialect, or by the model: not every provider's model makes embeddings.
      const isRefused = probe.status === 400 && /cannot be asked in the|can be asked in this format/.test(probe.text);
      await truth(`${call.dialect} at ${name}`, isRefused ? 0 : 1, (id) => post(path, id, body));
      if (isRefused) refused += 1;
      else pairs += 1;
    }
  }
  t.diagnostic(`${pairs} pairs of dialect and provider compared, ${refused} refused`);
  assert.ok(pairs >= 75, `${pairs} pairs`);
});

test("failover tells of each provider that was asked, and what is no LLM call of the one that gets it", async () => {
  const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] });
  await truth("failover", 2, (id) => post("/failover/v1/chat/completions", id, body));
  await truth("models", 1, (id) =>
    fetch(`${gateway.url()}/openai/v1/models?limit=1`, { headers: { "x-request-id": id } }).then((r) => r.text()),
  );
});

for (const kind of ["legacy", "modern", "old", "stdio", "all"]) {
  const servers = kind === "all" ? 4 : 1;
  test(`MCP clients of both eras at ${kind === "all" ? "four servers at once" : `a server of the kind ${kind}`}`, async () => {
    const client = rawClient(`${gateway.url()}/mcp-${kind}`);
    const say = (id: string, message: object) =>
      client.post({ jsonrpc: "2.0", ...message }, { "x-request-id": id, ...auth });
    const params = { protocolVersion: client.version, capabilities: {}, clientInfo: { name: "test", version: "1" } };
    // A server of the other era is asked twice: in the client's words, then in its own.
    await truth("initialize", servers + (kind === "modern" || kind === "all" ? 1 : 0), async (id) => {
      const answer = await say(id, { id: "first", method: "initialize", params });
      client.sessionId = answer.headers.get("mcp-session-id") ?? undefined;
    });
    await truth(
      "initialized",
      kind === "modern" ? 0 : kind === "all" ? 3 : 1,
      (id) => say(id, { method: "notifications/initialized" }),
      { isNotification: true },
    );
    let tool = "echo";
    await truth("tools/list", servers, async (id) => {
      const { message } = await say(id, { id: 7, method: "tools/list", params: {} });
      tool = message.result.tools.at(-1).name;
    });
    await truth("tools/call", 1, (id) =>
      say(id, { id: "é", method: "tools/call", params: { name: tool, arguments: { message: "hi", _: 1 } } }),
    );

    const ask = (id: string, method: string, given: Record<string, unknown>) => {
      const { body, headers } = modernRequest(method, given, { headers: { "x-request-id": id, ...auth } });
      return fetch(client.url, { method: "POST", headers, body }).then((response) => response.text());
    };
    await truth("modern tools/list", servers, (id) => ask(id, "tools/list", {}));
    await truth("modern tools/call", 1, (id) => ask(id, "tools/call", { name: tool, arguments: { message: "hi" } }));
  });
}

test("all snapshots were compared", (t: TestContext) => {
  t.diagnostic(`${snapshots} snapshots of ${looks} requests compared with the wire, 0 differences`);
  assert.ok(snapshots > 200, `${snapshots}`);
});
