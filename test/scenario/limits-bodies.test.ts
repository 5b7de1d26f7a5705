/** Spec 3 and 8: a token limit counts every request with a body where it stands, whatever the body is. */
import assert from "node:assert/strict";
import { type ClientRequest, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import type { TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

type Kind = "ai" | "host";

interface Setup {
  readonly gateway: TestGateway;
  readonly provider: TestBackend;
  /** Tokens that the one bucket has lost. */
  used(): Promise<number>;
}

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const OK: Answer = (request, response) => {
  request.resume().on("end", () => response.writeHead(200, { "content-type": "application/json" }).end('{"ok":true}'));
};
const WITH_USAGE: Answer = (request, response) => {
  request
    .resume()
    .on("end", () =>
      response.writeHead(200, { "content-type": "application/json" }).end('{"usage":{"total_tokens":77}}'),
    );
};

async function setUp(
  t: TestContext,
  kind: Kind,
  tokens: number,
  options: { scope?: "gateway" | "route"; answer?: Answer; entry?: object } = {},
): Promise<Setup> {
  const provider = await backendFor(t, options.answer ?? OK);
  const policies = { rateLimit: { local: [{ tokens, unit: "Hours", ...options.entry }] } };
  const target =
    kind === "host"
      ? { host: provider.host }
      : { ai: { name: "p", provider: { openAICompatible: { baseUrl: `http://${provider.host}/v1` } } } };
  const isGateway = options.scope === "gateway";
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      gateways: { default: { port: 0, policies: isGateway ? policies : {} } },
      routes: [{ name: "llm", backends: [target], policies: isGateway ? {} : policies }],
    }),
  );
  return {
    gateway,
    provider,
    async used() {
      const { rules } = (await (await fetch(`${gateway.adminUrl}/debug/limits`)).json()) as {
        rules: { buckets: { remaining: number }[] }[];
      };
      return tokens - (rules[0]?.buckets[0]?.remaining ?? tokens);
    },
  };
}

async function send(
  gateway: TestGateway,
  path: string,
  body: string | Buffer | FormData,
  headers: Record<string, string> = {},
  method = "POST",
): Promise<number> {
  const response = await fetch(gateway.url() + path, { method, headers, body: body as never });
  await response.arrayBuffer();
  return response.status;
}

function form(bytes: number): FormData {
  const made = new FormData();
  made.set("model", "gpt-image");
  made.set("image", new Blob([Buffer.alloc(bytes, 7)]), "x.png");
  return made;
}

const JSON_TYPE = { "content-type": "application/json" };
const CALL = '{"model":"m","messages":[{"role":"user","content":"one two three four"}]}';

interface Way {
  readonly name: string;
  readonly path: string;
  readonly body: () => string | Buffer | FormData;
  readonly headers?: Record<string, string>;
  readonly method?: string;
  /** What is charged where an answer tells nothing: at least and at most. */
  readonly charge: readonly [number, number];
}

const AI_WAYS: readonly Way[] = [
  { name: "an image edit", path: "/v1/images/edits", body: () => form(200 * 1024), charge: [200, 202] },
  { name: "a transcription", path: "/v1/audio/transcriptions", body: () => form(100 * 1024), charge: [100, 102] },
  { name: "a file", path: "/v1/files", body: () => form(300 * 1024), charge: [0, 0] },
];
const HOST_WAYS: readonly Way[] = [
  { name: "JSON without a model", path: "/generate", body: () => `{"inputs":"${"y".repeat(386)}"}`, charge: [99, 101] },
  { name: "a JSON list", path: "/x", body: () => `["${"y".repeat(396)}"]`, charge: [100, 100] },
  { name: "text", path: "/x", body: () => "y".repeat(400), charge: [100, 100] },
  { name: "a form", path: "/x", body: () => form(200 * 1024), charge: [200, 202] },
  {
    name: "an encoded body",
    path: "/x",
    body: () => gzipSync(CALL),
    headers: { ...JSON_TYPE, "content-encoding": "gzip" },
    charge: [60, 120],
  },
  {
    name: "a foreign charset",
    path: "/x",
    body: () => Buffer.from(CALL, "utf16le"),
    headers: { "content-type": "application/json; charset=utf-16" },
    charge: [37, 37],
  },
  { name: "two models", path: "/x", body: () => CALL.replace("{", '{"model":"n",'), charge: [22, 22] },
  { name: "two bodies", path: "/x", body: () => CALL + CALL, charge: [37, 37] },
];

for (const [kind, ways] of [
  ["ai", AI_WAYS],
  ["host", HOST_WAYS],
] as const) {
  for (const { name, path, body, headers, method, charge } of ways) {
    test(`${kind}: ${name} is charged by its size, or by its usage, and needs a budget`, async (t) => {
      const { gateway, used } = await setUp(t, kind, 10_000);
      assert.equal(await send(gateway, path, body(), headers, method), 200);
      const [least, most] = charge;
      const cost = await used();
      assert.ok(cost >= least && cost <= most, `${cost} were charged`);

      const counted = await setUp(t, kind, 10_000, { answer: WITH_USAGE });
      assert.equal(await send(counted.gateway, path, body(), headers, method), 200);
      assert.equal(await counted.used(), most === 0 ? 0 : 77);

      const empty = await setUp(t, kind, 1);
      assert.equal(await send(empty.gateway, kind === "ai" ? "/v1/chat/completions" : "/", CALL, JSON_TYPE), 200);
      assert.equal(await send(empty.gateway, path, body(), headers, method), 429);
    });
  }

  test(`${kind}: an answer without usage costs the estimate of its text, a refusal nothing`, async (t) => {
    const text = "The quick brown fox jumps over the lazy dog. ".repeat(20);
    const answers: [type: string, body: string | Buffer, least: number, most: number][] = [
      ["application/json", JSON.stringify({ choices: [{ message: { content: text } }] }), 180, 280],
      ["text/plain", text, 180, 280],
      ["application/json", JSON.stringify({ data: [{ b64_json: "A".repeat(100_000) }] }), 1000, 1040],
      ["application/json", JSON.stringify({ data: [{ embedding: Array(2000).fill(0.25) }] }), 8, 30],
      ["image/png", Buffer.alloc(100_000, 7), 8, 30],
      ["application/octet-stream", Buffer.alloc(100_000, 255), 8, 30],
      ["application/json", JSON.stringify({ content: text.repeat(200) }), 36_000, 56_000],
    ];
    for (const [type, body, least, most] of answers) {
      const { gateway, used } = await setUp(t, kind, 100_000, {
        answer: (request, response) => {
          request.resume().on("end", () => response.writeHead(200, { "content-type": type }).end(body));
        },
      });
      assert.equal(await send(gateway, "/v1/chat/completions", CALL, JSON_TYPE), 200);
      const cost = await used();
      assert.ok(cost >= least && cost <= most, `${type} of ${body.length} bytes cost ${cost}`);
    }
    const refusing = await setUp(t, kind, 100_000, {
      answer: (request, response) => {
        request.resume().on("end", () => response.writeHead(400, JSON_TYPE).end(JSON.stringify({ error: text })));
      },
    });
    assert.equal(await send(refusing.gateway, "/v1/chat/completions", CALL, JSON_TYPE), 400);
    assert.equal(await refusing.used(), 0);
  });

  test(`${kind}: an upload of unknown length streams and is charged by what went through`, async (t) => {
    const path = kind === "ai" ? "/v1/audio/transcriptions" : "/upload";
    let arrived = 0;
    const { gateway, used } = await setUp(t, kind, 10_000, {
      answer: (request, response) => {
        request.on("data", (chunk: Buffer) => {
          arrived += chunk.length;
        });
        request.on("end", () => response.writeHead(204).end());
      },
    });
    const headers = { "content-type": "multipart/form-data; boundary=b", "transfer-encoding": "chunked" };
    const upload = httpRequest(gateway.url() + path, { method: "POST", headers });
    const answered = new Promise<IncomingMessage>((resolve) => upload.once("response", resolve));
    upload.write(Buffer.alloc(50 * 1024, "-"));
    await eventually("the first half has arrived", () => arrived === 50 * 1024);
    upload.end(Buffer.alloc(50 * 1024, "-"));
    assert.equal((await answered).resume().statusCode, 204);
    await eventually("it is settled", async () => (await used()) === 100);
  });

  test(`${kind}: a client that leaves its upload pays for what it sent`, async (t) => {
    const path = kind === "ai" ? "/v1/audio/transcriptions" : "/upload";
    let arrived = 0;
    const { gateway, used } = await setUp(t, kind, 10_000, {
      answer: (request) => {
        request.on("data", (chunk: Buffer) => {
          arrived += chunk.length;
        });
      },
    });
    const headers = { "content-type": "multipart/form-data; boundary=b", "content-length": String(1024 * 1024) };
    const upload: ClientRequest = httpRequest(gateway.url() + path, { method: "POST", headers });
    upload.on("error", () => undefined);
    upload.write(Buffer.alloc(100 * 1024, "-"));
    await eventually("the beginning has arrived", () => arrived === 100 * 1024);
    assert.equal(await used(), 1024);
    upload.destroy();
    await eventually("it is settled", async () => (await used()) === 100);
  });
}

test("a gateway's limit counts on plain routes only what may be an LLM call", async (t) => {
  const { gateway, provider, used } = await setUp(t, "host", 100_000, { scope: "gateway" });
  let seen = 0;
  provider.server.on("request", () => {
    seen += 1;
  });
  const passing: [body: string | Buffer | FormData, headers?: Record<string, string>][] = [
    ["y".repeat(400)],
    ['{"query":"x"}', JSON_TYPE],
    ['{"index":1}\n{"title":"x"}\n', { "content-type": "application/x-ndjson" }],
    [gzipSync("a log"), { "content-type": "application/x-ndjson", "content-encoding": "gzip" }],
    [form(1000)],
    [Buffer.alloc(40 * 1024 * 1024, "y"), { "content-type": "application/octet-stream" }],
  ];
  for (const [body, headers] of passing) assert.equal(await send(gateway, "/x", body, headers), 200);
  assert.equal(seen, passing.length);
  assert.equal(await used(), 0);
  const counted: [body: string | Buffer, headers: Record<string, string>][] = [
    [CALL, JSON_TYPE],
    [CALL + CALL, JSON_TYPE],
    [CALL.replace("{", '{"mod\\u0065l":"n",'), JSON_TYPE],
    [gzipSync(CALL), { ...JSON_TYPE, "content-encoding": "gzip" }],
  ];
  let before = 0;
  for (const [body, headers] of counted) {
    assert.equal(await send(gateway, "/x", body, headers), 200);
    const after = await used();
    assert.ok(after > before, `${String(body).slice(0, 40)} cost nothing`);
    before = after;
  }
});

test("a route's own limit and the gateway's are charged each for what concerns it", async (t) => {
  const provider = await backendFor(t, OK);
  const limit = (tokens: number): object => ({ rateLimit: { local: [{ tokens, unit: "Hours" }] } });
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      gateways: { default: { port: 0, policies: limit(1000) } },
      routes: [{ name: "llm", backends: [{ host: provider.host }], policies: limit(2000) }],
    }),
  );
  assert.equal(await send(gateway, "/x", "y".repeat(400)), 200);
  const { rules } = (await (await fetch(`${gateway.adminUrl}/debug/limits`)).json()) as {
    rules: { owner: string; buckets: { remaining: number }[] }[];
  };
  const left = (owner: string): number | undefined =>
    rules.find((rule) => rule.owner.startsWith(owner))?.buckets[0]?.remaining;
  assert.deepEqual([left("gateway"), left("route")], [undefined, 1900]);
});

test("50 parallel calls of 140 tokens on a budget of 1,000: with reserveOutput at most 7 pass", async (t) => {
  const waiting: (() => void)[] = [];
  const body = JSON.stringify({ model: "m", max_tokens: 140, messages: [{ role: "user", content: "hi" }] });
  for (const [kind, reserveOutput] of [
    ["ai", true],
    ["host", true],
    ["ai", false],
  ] as const) {
    const { gateway } = await setUp(t, kind, 1000, {
      entry: reserveOutput ? { reserveOutput } : {},
      answer: (request, response) => {
        request.resume();
        waiting.push(() => response.writeHead(200, JSON_TYPE).end('{"usage":{"total_tokens":140}}'));
      },
    });
    let refused = 0;
    const calls = Array.from({ length: 50 }, async () => {
      const status = await send(gateway, "/v1/chat/completions", body, JSON_TYPE);
      if (status === 429) refused += 1;
      return status;
    });
    await eventually("all are decided", () => waiting.length + refused === 50);
    const passed = waiting.length;
    for (const answer of waiting.splice(0)) answer();
    await Promise.all(calls);
    if (reserveOutput) assert.ok(passed >= 5 && passed <= 7, `${passed} passed`);
    else assert.equal(passed, 50, "the spec's own rule admits while anything is left");
  }
});
