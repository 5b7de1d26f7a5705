/** Keys with a list of models and rules about the model judge every model that a server could find in a request. */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import {
  ENCODINGS,
  type Encoding,
  encode,
  MODEL_PLACES,
  type ModelPlace,
  readsModel,
  type SentRequest,
  send,
} from "../support/llm/model-requests.ts";

const FORBIDDEN = "EXPENSIVE";
const LIMITED = { authorization: "Bearer limited" };

const received: { url: string; method: string; headers: IncomingMessage["headers"]; body: Buffer }[] = [];
const server = createServer((req, res) => {
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => chunks.push(chunk));
  req.on("end", () => {
    received.push({ url: req.url ?? "", method: req.method ?? "", headers: req.headers, body: Buffer.concat(chunks) });
    res.writeHead(200, { "content-type": "application/json" }).end('{"usage":{"total_tokens":1}}');
  });
});
server.on("upgrade", (req, socket) => {
  received.push({ url: req.url ?? "", method: "GET", headers: req.headers, body: Buffer.alloc(0) });
  socket.end(
    "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
  );
});
let gateway: TestGateway;

before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const keys = { keys: [{ key: "limited", models: ["cheap"] }, { key: "open" }] };
  const route = (name: string, backend: object, policies: object): object => ({
    name,
    matches: [{ path: { pathPrefix: `/${name}` } }],
    policies,
    backends: [backend],
  });
  const ai = { ai: { name: "p", provider: { openAICompatible: { baseUrl: `http://${host}/v1` } } } };
  const rule = { rules: ['!has(llm.requestModel) || llm.requestModel == "cheap"'] };
  gateway = await startGateway(
    JSON.stringify({
      gateways: { default: { port: 0 } },
      routes: [
        route("host", { host }, { apiKey: keys }),
        route("ai", ai, { apiKey: keys }),
        route("rule-host", { host }, { authorization: rule }),
        route("rule-ai", ai, { authorization: rule }),
      ],
    }),
  );
});
after(async () => {
  await gateway.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});
beforeEach(() => {
  received.length = 0;
});

function json(path: string, body: unknown, more: Partial<SentRequest> = {}): SentRequest {
  const headers = { "content-type": "application/json", ...LIMITED, ...more.headers };
  return { method: "POST", path, body: Buffer.from(JSON.stringify(body ?? {})), cuts: [], ...more, headers };
}

const asks = (model: string): Record<string, unknown> => ({ model, messages: [{ role: "user", content: "x" }] });

function form(fields: Readonly<Record<string, string>>): Pick<SentRequest, "body" | "headers"> {
  const parts = Object.entries(fields).map(
    ([name, value]) => `--b\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
  );
  const headers = { ...LIMITED, "content-type": "multipart/form-data; boundary=b" };
  return { headers, body: Buffer.from(`${parts.join("")}--b--\r\n`) };
}

async function isKeptBack(sent: SentRequest, label: string): Promise<void> {
  received.length = 0;
  const { status, text } = await send(gateway.url(), sent);
  assert.ok(status >= 400 && status < 500, `${label}: ${status} ${text}`);
  assert.deepEqual(received, [], label);
}

const STORED = ["/v1/batches", "/v1/files", "/v1/uploads", "/v1/threads", "/v1/fine_tuning/jobs", "/v1/vector_stores"];
const SPENDING = ["/v1/assistants", "/v1/videos", "/v1/threads/t/runs", "/v1/messages/count_tokens"];
const UNKNOWN = ["/v1/responses/x/cancel", "/v1/messages/batches", "/v1/responses/input_tokens", "/api/generate"];

for (const place of ["host", "ai"]) {
  test(`${place}: a key with a list sends a model that is not on it to no path [M14]`, async () => {
    for (const path of [...STORED, ...SPENDING, ...UNKNOWN, "/v1/chat/completions"])
      await isKeptBack(json(`/${place}${path}`, asks(FORBIDDEN)), path);
  });

  test(`${place}: a key with a list cannot store what may use any model, whatever model it names [M14]`, async () => {
    for (const path of ["/v1/batches", "/v1/files", "/v1/uploads", "/v1/fine_tuning/jobs", "/v1/messages/batches"]) {
      await isKeptBack(json(`/${place}${path}`, { input_file_id: "f" }), path);
      await isKeptBack(json(`/${place}${path}`, { input_file_id: "f", model: "cheap" }), `${path} with a model`);
    }
  });

  test(`${place}: a key with a list cannot open a WebSocket [M14]`, async () => {
    const headers = {
      ...LIMITED,
      connection: "upgrade",
      upgrade: "websocket",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    };
    for (const query of ["", "?model=cheap", `?model=${FORBIDDEN}`]) {
      const path = `/${place}/v1/realtime${query}`;
      await isKeptBack({ method: "GET", path, headers, body: undefined, cuts: [] }, path);
    }
  });

  test(`${place}: every method with a body is judged, and none is changed by a header [M14]`, async () => {
    for (const method of ["GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "QUERY"])
      await isKeptBack(json(`/${place}/v1/chat/completions`, asks(FORBIDDEN), { method }), method);
    for (const name of ["x-http-method-override", "x-http-method", "x-method-override", "x_http_method_override"]) {
      const headers = { ...LIMITED, [name]: "POST" };
      const path = `/${place}/v1/chat/completions`;
      received.length = 0;
      const { status } = await send(gateway.url(), { method: "GET", path, headers, body: undefined, cuts: [] });
      const arrived = received.filter((one) => name in one.headers);
      assert.ok(status === 403 || arrived.length === 0, `${name}: ${status}`);
    }
  });

  test(`${place}: a form names its model in any case [M14]`, async () => {
    const path = `/${place}/v1/images/edits`;
    for (const name of ["model", "Model", "MODEL", "models", "fallbacks", "model_id"])
      await isKeptBack({ method: "POST", path, cuts: [], ...form({ [name]: FORBIDDEN }) }, name);
    for (const name of ["Model", "MODEL", "models", "fallbacks", "model_id"])
      await isKeptBack({ method: "POST", path, cuts: [], ...form({ model: "cheap", [name]: FORBIDDEN }) }, name);
    const session = form({ model: "cheap", session: JSON.stringify({ model: FORBIDDEN }) });
    await isKeptBack({ method: "POST", path, cuts: [], ...session }, "a field of JSON");
    const sent = { method: "POST", path, cuts: [], ...form({ model: "cheap" }) };
    assert.equal((await send(gateway.url(), sent)).status, 200);
  });

  test(`${place}: what a key with a list may use passes`, async () => {
    const ok = async (sent: SentRequest): Promise<void> => {
      const { status, text } = await send(gateway.url(), sent);
      assert.equal(status, 200, `${sent.method} ${sent.path}: ${text}`);
    };
    await ok(json(`/${place}/v1/chat/completions`, asks("cheap")));
    await ok(json(`/${place}/v1/chat/completions`, { ...asks("cheap"), models: ["cheap"], fallbacks: ["cheap"] }));
    await ok({ method: "GET", path: `/${place}/v1/models`, headers: LIMITED, body: undefined, cuts: [] });
    const content = `the model ${FORBIDDEN}`;
    const schema = { type: "object", properties: { model: { type: "string", enum: [FORBIDDEN] } } };
    const tools = [{ type: "function", function: { name: "f", description: content, parameters: schema } }];
    const messages = [{ role: "user", content: [{ type: "text", text: content, model: FORBIDDEN }] }];
    await ok(json(`/${place}/v1/chat/completions`, { model: "cheap", messages, tools }));
    const claude = { model: "cheap", max_tokens: 1, messages, tools: [{ name: "f", input_schema: schema }] };
    if (place === "host") await ok(json("/host/v1/messages", claude));
  });
}

for (const place of ["rule-host", "rule-ai"]) {
  test(`${place}: a rule about the model is asked for each model of a request [M14]`, async () => {
    for (const one of MODEL_PLACES)
      await isKeptBack(json(`/${place}/v1/chat/completions`, one.body("cheap", FORBIDDEN)), one.name);
    await isKeptBack(json(`/${place}/v1/messages/batches`, { requests: [{ params: asks(FORBIDDEN) }] }), "a batch");
    await isKeptBack(json(`/${place}/v1/messages/count_tokens`, asks(FORBIDDEN)), "a count");
    await isKeptBack(
      { method: "POST", path: `/${place}/v1/images/edits`, cuts: [], ...form({ Model: FORBIDDEN }) },
      "form",
    );
  });
}

test("a rule about the model judges the model of a WebSocket, of a path and of a query on a host route [M14]", async () => {
  const headers = { connection: "upgrade", upgrade: "websocket", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==" };
  const socket = { method: "GET", headers, body: undefined, cuts: [] };
  await isKeptBack({ ...socket, path: `/rule-host/v1/realtime?model=${FORBIDDEN}` }, "WebSocket");
  await isKeptBack({ ...socket, path: `/rule-host/openai/realtime?api-version=1&deployment=${FORBIDDEN}` }, "Azure");
  for (const path of [
    `/v1/chat/completions?model=${FORBIDDEN}`,
    `/v1/chat/completions?Model=${FORBIDDEN}`,
    `/openai/deployments/${FORBIDDEN}/chat/completions`,
    `/v1/engines/${FORBIDDEN}/completions`,
    `/models/org/${FORBIDDEN}/v1/chat/completions`,
  ])
    await isKeptBack(json(`/rule-host${path}`, asks("cheap")), path);
  const urlencoded = { headers: { "content-type": "application/x-www-form-urlencoded" } };
  for (const text of [`model=${FORBIDDEN}`, `Model=${FORBIDDEN}`, `a=b&model=EXPENS%49VE`])
    await isKeptBack({ method: "POST", path: "/rule-host/x", body: Buffer.from(text), cuts: [], ...urlencoded }, text);
  assert.equal((await send(gateway.url(), { ...socket, path: "/rule-host/v1/realtime?model=cheap" })).status, 101);
});

test("a host route with a rule about the model refuses text that is not plain UTF-8 [M15]", async () => {
  const text = JSON.stringify(asks(FORBIDDEN));
  const sent = (body: Buffer, cuts: readonly number[], headers: Record<string, string> = {}): SentRequest =>
    json("/rule-host/v1/chat/completions", undefined, { body, cuts, headers });
  for (const encoding of ENCODINGS)
    for (const cuts of [[], [1], [2], [3], [1, 2, 3, 4]])
      for (const blanks of ["", " \r\n"])
        await isKeptBack(sent(encode(blanks + text, encoding), cuts), `${encoding} ${cuts}`);
  await isKeptBack(sent(Buffer.from(text.replace(":", ":\0")), []), "NUL between values");
  await isKeptBack(sent(Buffer.from(text.replace('"x"', '"x\0"')), []), "NUL in a string");
  for (const charset of ["utf-16", "utf-7", "ibm037"])
    await isKeptBack(sent(Buffer.from(text), [], { "content-type": `application/json; charset=${charset}` }), charset);
  await isKeptBack(sent(gzipSync(text), [], { "content-encoding": "gzip" }), "gzip");
  await isKeptBack(sent(Buffer.from(text), [], { "content-encoding": "gzip" }), "plain text that claims to be gzip");
});

test("other bodies pass a host route with a rule that admits what names no model", async () => {
  const binary = Buffer.from([0, 0, 0, 0x18, 0x66, 0x74, 0x79, 0x70, 0, 0xff, 0x7b]);
  for (const [body, type] of [
    [binary, "video/mp4"],
    [Buffer.from("a,b\n1,2\n"), "text/csv"],
    [Buffer.from(JSON.stringify({ car: { model: "T" } })), "application/json"],
    [Buffer.from(JSON.stringify([{ jsonrpc: "2.0", method: "x" }])), "application/json"],
    [Buffer.from("a=1&b=2"), "application/x-www-form-urlencoded"],
    [Buffer.alloc(0), "application/json"],
  ] as const)
    for (const cuts of [[], [1]]) {
      const { status, text } = await send(gateway.url(), {
        method: "POST",
        path: "/rule-host/orders",
        headers: { "content-type": type },
        body,
        cuts,
      });
      assert.equal(status, 200, `${type}: ${text}`);
    }
});

interface Case {
  readonly place: ModelPlace;
  readonly encoding: Encoding;
  readonly request: SentRequest;
}

const RUNS = Number(process.env.MODEL_REQUESTS ?? 200);

test("no request of a limited key or under a rule reaches a server that finds a forbidden model in it [M14]", async () => {
  const paths = fc.constantFrom(
    ...[...STORED, ...SPENDING, ...UNKNOWN, "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"],
    ...["/v1/completions", "/v1/images/generations", "/v1/realtime/client_secrets", "/chat/completions"],
  );
  const routes = fc.constantFrom("host", "ai", "rule-host", "rule-ai");
  const methods = fc.constantFrom("POST", "POST", "POST", "GET", "PUT", "PATCH", "OPTIONS", "DELETE");
  const types = fc.constantFrom("application/json", "text/plain", "application/octet-stream", "", "Application/JSON");
  const cases = fc
    .record({
      route: routes,
      path: paths,
      method: methods,
      type: types,
      place: fc.constantFrom(...MODEL_PLACES),
      encoding: fc.oneof(
        { weight: 3, arbitrary: fc.constant("utf8" as const) },
        { weight: 2, arbitrary: fc.constantFrom(...ENCODINGS) },
      ),
      cuts: fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 4 }),
      rename: fc.constantFrom("as is", "upper", "title", "escaped", "long s"),
      blanks: fc.constantFrom("", " ", "\n\t "),
      query: fc.constantFrom("", "", "?x=1", "?model=cheap"),
      head: fc.constantFrom(
        "",
        "",
        "",
        "x-model",
        "x-amzn-sagemaker-target-model",
        "helicone-fallbacks",
        "query",
        "json",
      ),
    })
    .map(({ route, path, method, type, place, encoding, cuts, rename, blanks, query, head }): Case => {
      // The forbidden model is in one place: in the body, or in the head.
      const text = blanks + renamed(JSON.stringify(place.body("cheap", head === "" ? FORBIDDEN : "cheap")), rename);
      const named = {
        [head === "json" ? "x-portkey-config" : head]: head === "json" ? `{"Model":"${FORBIDDEN}"}` : FORBIDDEN,
      };
      const headers = {
        ...(type === "" ? {} : { "content-type": type }),
        ...LIMITED,
        ...(head === "" || head === "query" ? {} : named),
      };
      const asked = head === "query" ? `?MODEL=${FORBIDDEN}` : query;
      const body = encode(text, encoding);
      return { place, encoding, request: { method, path: `/${route}${path}${asked}`, headers, body, cuts } };
    });
  await fc.assert(
    fc.asyncProperty(cases, async ({ place, encoding, request }) => {
      received.length = 0;
      const { status } = await send(gateway.url(), request);
      assert.ok(status < 500, `${status}`);
      for (const { url, body, headers } of received)
        assert.ok(
          !readsModel(FORBIDDEN, url, body) && !JSON.stringify(headers).includes(FORBIDDEN),
          `${request.method} ${request.path} ${place.name} ${encoding} ${request.cuts}: ${request.body}`,
        );
    }),
    { numRuns: RUNS, seed: 1 },
  );
});

test("the same requests with an allowed model in each place pass", async () => {
  const cases = fc.record({
    route: fc.constantFrom("host", "ai", "rule-host", "rule-ai"),
    path: fc.constantFrom("/v1/chat/completions", "/v1/completions", "/v1/embeddings"),
    place: fc.constantFrom(...MODEL_PLACES),
    cuts: fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 3 }),
    encoding: fc.constantFrom("utf8" as const, "utf8-bom" as const),
  });
  await fc.assert(
    fc.asyncProperty(cases, async ({ route, path, place, cuts, encoding }) => {
      const body = encode(JSON.stringify(place.body("cheap", "cheap")), encoding);
      const { status, text } = await send(gateway.url(), json(`/${route}${path}`, undefined, { body, cuts }));
      assert.equal(status, 200, `${route} ${path} ${place.name}: ${text}`);
    }),
    { numRuns: 60, seed: 1 },
  );
});

test("a list of models and the policies of models hold for alternatives, too [M14]", async () => {
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const params = (model: string): object => ({ model, apiKey: "k", hostOverride: host });
  const closed = await startGateway(
    JSON.stringify({
      llm: {
        port: 0,
        models: [
          { name: "cheap", provider: "openAI", params: params("cheap") },
          { name: "spare", provider: "openAI", params: params("spare") },
          {
            name: "guarded",
            provider: "openAI",
            params: params("guarded"),
            policies: { authorization: { rules: ["false"] } },
          },
        ],
      },
    }),
  );
  const status = async (body: object): Promise<number> =>
    (await send(closed.url(), json("/v1/chat/completions", { ...asks("cheap"), ...body }))).status;
  try {
    received.length = 0;
    assert.equal(await status({ models: [FORBIDDEN] }), 404);
    assert.equal(await status({ fallbacks: [{ model: FORBIDDEN }] }), 404);
    assert.equal(await status({ models: ["guarded"] }), 400);
    assert.equal(received.length, 0);
    assert.equal(await status({ models: ["cheap", "spare"] }), 200);
  } finally {
    await closed.close();
  }
});

test("budgets and limits by model reject a request that names several, and one without a price [M14]", async () => {
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const provider = { openAI: {} };
  const ai = { ai: { name: "p", provider, hostOverride: host, auth: { key: "k" } } };
  const route = (name: string, backend: object, policies: object): object => ({
    name,
    matches: [{ path: { pathPrefix: `/${name}` } }],
    policies,
    backends: [backend],
  });
  const byModel = { rateLimit: { local: [{ tokens: 1000, unit: "Hours", key: "llm.requestModel" }] } };
  const priced = await startGateway(
    JSON.stringify({
      gateways: { default: { port: 0 } },
      routes: [
        route("limit-host", { host }, byModel),
        route("limit-ai", ai, byModel),
        route("budget", ai, { budgets: { limits: [{ name: "b", cost: 1, per: "day", hard: true }] } }),
        route("budget-by-model", ai, {
          budgets: { limits: [{ name: "m", tokens: 1000, per: "day", key: "llm.requestModel" }] },
        }),
      ],
    }),
  );
  const status = async (path: string, body: object): Promise<number> =>
    (await send(priced.url(), json(`/${path}/v1/chat/completions`, { ...asks("gpt-4o-mini"), ...body }))).status;
  try {
    for (const path of ["limit-host", "limit-ai", "budget-by-model"]) {
      assert.equal(await status(path, { models: [FORBIDDEN] }), 400, path);
      assert.equal(await status(path, { models: ["gpt-4o-mini"] }), 200, path);
    }
    assert.equal(await status("budget", { models: [FORBIDDEN] }), 403);
    assert.equal(await status("budget", { models: ["gpt-4o"] }), 200);
  } finally {
    await priced.close();
  }
});

function renamed(text: string, how: string): string {
  if (how === "upper") return text.replace(/"(\w+)":/g, (_, key: string) => `"${key.toUpperCase()}":`);
  if (how === "title") return text.replace(/"(\w)(\w*)":/g, (_, a: string, b: string) => `"${a.toUpperCase()}${b}":`);
  if (how === "escaped") return text.replace(/"(\w*)o(\w*)":/g, '"$1\\u006f$2":');
  if (how === "long s") return text.replace(/"(\w*)s":/g, '"$1\u017f":');
  return text;
}
