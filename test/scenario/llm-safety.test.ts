/**
 * Where calls and keys go, what is refused, and how streams pass: bytes as they came, errors in the dialect.
 */
import assert from "node:assert/strict";
import { createServer, request, type Server } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let upstream: TestUpstream;
let sink: Server;
let sinkConnections = 0;
let gateway: TestGateway;
/** Writes exactly these bytes, in these pieces, as the answer of the raw provider. */
let pieces: readonly (string | Buffer)[] = [];
let raw: Server;

before(async () => {
  upstream = await startUpstream();
  sink = createServer((_req, res) => res.end());
  sink.on("connection", () => {
    sinkConnections += 1;
  });
  raw = createServer((req, res) => {
    req.resume();
    req.on("end", async () => {
      res.writeHead(200, { "content-type": "text/event-stream" });
      for (const piece of pieces) await new Promise<void>((resolve) => res.write(piece, () => setImmediate(resolve)));
      res.end();
    });
  });
  await Promise.all(
    [sink, raw].map((server) => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))),
  );
  gateway = await startGateway(`
gateways: { keyed: { port: 0 }, open: { port: 0 }, raw: { port: 0 }, claude: { port: 0 } }
routes:
  - { name: keyed, gateways: keyed, backends: [{ ai: { provider: { openAI: {} }, auth: { key: the-secret-key }, hostOverride: "${upstream.host}", maxBodyBytes: 65536 } }] }
  - { name: open, gateways: open, backends: [{ ai: { provider: { openAI: {} }, hostOverride: "${upstream.host}" } }] }
  - { name: claude, gateways: claude, backends: [{ ai: { provider: { anthropic: {} }, hostOverride: "${upstream.host}" } }] }
  - { name: raw, gateways: raw, backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "127.0.0.1:${(raw.address() as AddressInfo).port}" } }] }
`);
});
after(async () => {
  await gateway?.close();
  await upstream.close();
  for (const server of [sink, raw]) {
    server.close();
    server.closeAllConnections();
  }
});

const question = { model: "m", messages: [{ role: "user", content: "Hi" }] };
const ask = (listener: string, body: unknown, headers = {}, path = "/v1/chat/completions") =>
  fetch(`${gateway.url(listener)}${path}`, {
    method: "POST",
    redirect: "manual",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });

test("a body that names another destination changes nothing about where the call and the key go [V1] [V27]", async () => {
  const elsewhere = `http://127.0.0.1:${(sink.address() as AddressInfo).port}`;
  const extra = {
    api_base: elsewhere,
    base_url: elsewhere,
    custom_host: elsewhere,
    endpoint: elsewhere,
    extra_body: { api_base: elsewhere },
  };
  const response = await ask(
    "keyed",
    { ...question, ...extra },
    { "x-portkey-custom-host": elsewhere, "x-forwarded-host": "evil" },
  );
  assert.equal(response.status, 200);
  assert.equal(upstream.last().headers.authorization, "Bearer the-secret-key");
  assert.equal(sinkConnections, 0);
});

test("a redirect of the provider is not followed and not passed on [M2]", async () => {
  const response = await ask("keyed", { ...question, model: "redirect" });
  assert.equal(response.status, 502);
  assert.equal(response.headers.get("location"), null);
  assert.match(await response.text(), /redirect/);
});

test("a configured key replaces every credential of the client [M2]", async () => {
  await ask("keyed", question, {
    authorization: "Bearer client",
    "x-api-key": "client",
    "api-key": "client",
    "x-goog-api-key": "client",
    cookie: "session=client",
  });
  const { headers } = upstream.last();
  assert.equal(headers.authorization, "Bearer the-secret-key");
  assert.ok(!JSON.stringify(headers).includes("client"));
});

test("without a key the client's own passes, in the header that the provider reads", async () => {
  await ask("open", question, { authorization: "Bearer mine" });
  assert.equal(upstream.last().headers.authorization, "Bearer mine");
  await ask("claude", question, { authorization: "Bearer mine" });
  assert.equal(upstream.last().headers["x-api-key"], "mine");
  await ask("open", { ...question, max_tokens: 5 }, { "x-api-key": "mine" }, "/v1/messages");
  assert.equal(upstream.last().headers.authorization, "Bearer mine");
});

test("unknown members and headers reach the provider byte for byte", async () => {
  const body =
    '{ "model":"m",\n "messages":[{"role":"user","content":"\\u00fc","unknown":[1,2.50,null]}], "future": {"a":1e3} }';
  await ask("open", body, { "openai-beta": "x=1" });
  assert.equal(upstream.last().headers["content-length"], String(Buffer.byteLength(body)));
  assert.equal(upstream.last().headers["openai-beta"], "x=1");
  assert.equal(upstream.last().headers["accept-encoding"], "identity");
  assert.equal(upstream.last().headers["x-forwarded-for"], undefined);
});

test("a body beyond the limit is 413, an encoded one 415 [M1]", async () => {
  const calls = upstream.requests.length;
  assert.equal((await ask("keyed", { ...question, padding: "x".repeat(70_000) })).status, 413);
  assert.equal((await ask("keyed", "x", { "content-encoding": "gzip" })).status, 415);
  assert.equal(upstream.requests.length, calls);
});

test("a body without a length is cut off at the limit [R31]", async () => {
  const status = await new Promise<number>((resolve, reject) => {
    const outgoing = request(
      `${gateway.url("keyed")}/v1/chat/completions`,
      { method: "POST", headers: { "content-type": "application/json" } },
      (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      },
    );
    outgoing.on("error", reject);
    outgoing.write(`{"model":"m","x":"`);
    for (let i = 0; i < 20; i++) outgoing.write("x".repeat(8192));
    outgoing.end('"}');
  });
  assert.equal(status, 413);
});

test("a client that waits for 100 Continue is asked for its body", async () => {
  const body = JSON.stringify(question);
  const socket = connect(gateway.port("open"), "127.0.0.1");
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n`,
  );
  let text = "";
  await new Promise<void>((resolve, reject) => {
    socket.on("error", reject);
    socket.on("close", () => resolve());
    socket.on("data", (chunk) => {
      if (text === "") socket.write(body);
      text += chunk;
    });
  });
  assert.match(text, /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200 /);
});

async function streamRaw(sent: readonly (string | Buffer)[], body = {}): Promise<Buffer> {
  pieces = sent;
  const response = await ask("raw", { ...question, stream: true, ...body });
  return Buffer.from(await response.arrayBuffer());
}

const chunk = (content: string) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`;
const usage = `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } })}\n\n`;
const done = "data: [DONE]\n\n";

test("a stream passes byte for byte: comments, CRLF, split characters, a 2 MiB event, a fake end in its text [M3] [M4]", async () => {
  const umlaut = Buffer.from(chunk("ü人"));
  const middle = umlaut.indexOf(Buffer.from("ü")) + 1;
  const streams: (string | Buffer)[][] = [
    [": comment\n\n", chunk("a"), done],
    [chunk("a").replaceAll("\n", "\r\n"), done.replaceAll("\n", "\r\n")],
    [umlaut.subarray(0, middle), umlaut.subarray(middle), done],
    [chunk("x".repeat(2 * 1024 * 1024)), chunk("after"), done],
    [chunk('data: [DONE]\n\n"usage":{"total_tokens":9}'), chunk("goes on"), done],
    ["\ufeffdata: {}\n\n", done],
    ["event: custom\nid: 7\nretry: 5\ndata: {}\n\n", done],
  ];
  for (const sent of streams)
    assert.ok((await streamRaw(sent)).equals(Buffer.concat(sent.map((piece) => Buffer.from(piece)))));
});

test("only the usage chunk that nobody asked for is missing", async () => {
  assert.equal((await streamRaw([chunk("a"), usage, done])).toString(), chunk("a") + done);
  assert.equal(
    (await streamRaw([chunk("a"), usage, done], { stream_options: { include_usage: true } })).toString(),
    chunk("a") + usage + done,
  );
  assert.equal(
    (await streamRaw([chunk("a") + usage.slice(0, 20), usage.slice(20) + done])).toString(),
    chunk("a") + done,
  );
});

test("each chunk goes out when it comes: the first is read while the stream is still open", async () => {
  const response = await ask("open", { ...question, model: "endless", stream: true });
  const reader = response.body?.getReader();
  const { value } = (await reader?.read()) ?? {};
  assert.match(Buffer.from(value ?? []).toString(), /^data: /);
  await reader?.cancel();
  await upstream.left;
});

test("a stream that breaks off ends with an error event in the client's dialect and a broken connection", async () => {
  for (const [listener, path, wanted] of [
    ["open", "/v1/chat/completions", /data: \{"error":\{"message":"the provider's stream ended early"/],
    ["claude", "/v1/messages", /event: error\ndata: \{"type":"error","error":/],
    ["claude", "/v1/chat/completions", /data: \{"error":\{"message":/],
  ] as const) {
    const { text, complete } = await readBroken(listener, path);
    assert.match(text, wanted);
    assert.ok(!text.includes("[DONE]") && !text.includes("message_stop"));
    assert.equal(complete, false);
  }
});

function readBroken(listener: string, path: string): Promise<{ text: string; complete: boolean }> {
  return new Promise((resolve, reject) => {
    const outgoing = request(
      `${gateway.url(listener)}${path}`,
      { method: "POST", headers: { "content-type": "application/json" } },
      (response) => {
        let text = "";
        response.on("data", (part) => {
          text += part;
        });
        response.on("error", () => undefined);
        response.on("close", () => resolve({ text, complete: response.complete }));
      },
    );
    outgoing.on("error", reject);
    outgoing.end(JSON.stringify({ model: "broken", stream: true, max_tokens: 9, messages: question.messages }));
  });
}

test("keys are in no dump and no log", async () => {
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  assert.ok(!dump.includes("the-secret-key"));
  assert.ok(!gateway.log().join("\n").includes("the-secret-key"));
});
