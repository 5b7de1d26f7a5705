/**
 * The response cache of LLM calls: whose answers are shared with whom, what is kept, streams, savings, faults.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { type ClientHttp2Stream, connect, type IncomingHttpHeaders } from "node:http2";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";

interface Provider {
  readonly host: string;
  readonly calls: () => number;
}

interface Question {
  readonly content?: string;
  readonly stream?: boolean;
  readonly model?: string;
}

type Body = { model: string; stream?: boolean; messages: { content: string }[] };

/** Each answer has a number, so that one can be told from another. */
async function provider(
  t: TestContext,
  special?: (body: Body, response: ServerResponse) => boolean,
): Promise<Provider> {
  let calls = 0;
  const { host } = await backendFor(t, (request: IncomingMessage, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      calls += 1;
      const body = JSON.parse(Buffer.concat(chunks).toString()) as Body;
      if (special?.(body, response) === true) return;
      const usage = { prompt_tokens: 60, completion_tokens: 40, total_tokens: 100 };
      if (body.stream !== true) {
        response.writeHead(200, {
          "content-type": "application/json",
          "x-request-id": `call-${calls}`,
          "set-cookie": "a=b",
        });
        const choices = [
          { index: 0, message: { role: "assistant", content: `answer ${calls}` }, finish_reason: "stop" },
        ];
        response.end(JSON.stringify({ id: "1", object: "chat.completion", model: body.model, choices, usage }));
        return;
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      const event = { id: "1", object: "chat.completion.chunk", model: body.model };
      for (const content of ["ans", `wer ${calls}`])
        response.write(`data: ${JSON.stringify({ ...event, choices: [{ index: 0, delta: { content } }] })}\n\n`);
      response.write(`data: ${JSON.stringify({ ...event, choices: [], usage })}\n\n`);
      response.end("data: [DONE]\n\n");
    });
  });
  return { host, calls: () => calls };
}

const KEYS = `apiKey: { mode: optional, keys: [{ key: key-a, metadata: { user: a } }, { key: key-b, metadata: { user: b } }] }`;

const yaml = (
  host: string,
  cache: string,
  policies = KEYS,
  config = "",
  auth = "auth: { key: provider-key }, ",
): string => `
config: { adminAddr: "127.0.0.1:0"${config} }
gateways: { default: { port: 0 } }
routes:
  - name: llm
    backends: [{ ai: { name: test, ${auth}cache: ${cache}, provider: { openAICompatible: { name: openai, baseUrl: "http://${host}/v1" } } } }]
    policies: { ${policies} }
`;

interface Answer {
  readonly status: number;
  readonly cache: string | null;
  readonly text: string;
  readonly headers: Headers;
}

function question({ model = "gpt-4o", content = "hi", stream = false }: Question = {}): string {
  return JSON.stringify({ model, messages: [{ role: "user", content }], ...(stream ? { stream } : {}) });
}

async function ask(
  gateway: TestGateway,
  key: string | undefined,
  more: Question & { readonly headers?: Record<string, string> } = {},
): Promise<Answer> {
  const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...more.headers,
    },
    body: question(more),
  });
  const { status, headers } = response;
  return { status, cache: headers.get("x-gateway-cache"), text: await response.text(), headers };
}

test("the same request of the same user is answered again, another user's or another request is not", async (t) => {
  const behind = await provider(t);
  const clock = shiftedClock();
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }"), { clock });
  const first = await ask(gateway, "key-a");
  assert.deepEqual([first.cache, behind.calls()], ["miss", 1]);
  const again = await ask(gateway, "key-a");
  assert.deepEqual([again.cache, again.text, behind.calls()], ["hit", first.text, 1]);
  assert.equal(again.headers.get("set-cookie"), null, "what belonged to the other call is not replayed");
  assert.equal((await ask(gateway, "key-b")).cache, "miss");
  assert.equal((await ask(gateway, "key-a", { content: "hi " })).cache, "miss");
  assert.equal((await ask(gateway, "key-a", { model: "gpt-4o-mini" })).cache, "miss");
  assert.equal((await ask(gateway, "key-a", { stream: true })).cache, "miss");
  clock.advance(599_999);
  assert.equal((await ask(gateway, "key-a")).cache, "hit");
  clock.advance(1);
  assert.equal((await ask(gateway, "key-a")).cache, "miss");
});

test("requests without an identity are never cached: they share nothing because it is missing", async (t) => {
  const behind = await provider(t);
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }"));
  for (let i = 1; i <= 3; i++) {
    const answer = await ask(gateway, undefined);
    assert.deepEqual([answer.cache, behind.calls()], ["bypass", i]);
  }
});

test("shared: users and those without identity get the same answer", async (t) => {
  const behind = await provider(t);
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m, scope: shared }"));
  const first = await ask(gateway, "key-a");
  for (const key of ["key-b", undefined]) {
    const answer = await ask(gateway, key);
    assert.deepEqual([answer.cache, answer.text], ["hit", first.text]);
  }
  assert.equal(behind.calls(), 1);
});

test("a client that brings the provider's key gets nothing for another key, not even where all is shared", async (t) => {
  for (const scope of ["user", "shared"]) {
    const behind = await provider(t);
    const gateway = await gatewayFor(t, yaml(behind.host, `{ ttl: 10m, scope: ${scope} }`, "", "", ""));
    assert.equal((await ask(gateway, "sk-one")).cache, "miss");
    assert.equal((await ask(gateway, "sk-one")).cache, "hit");
    assert.equal((await ask(gateway, "sk-two")).cache, "miss");
    assert.notEqual((await ask(gateway, undefined)).cache, "hit");
  }
});

test("no header that may carry a credential or choose an account is answered with another's answer [M16]", async (t) => {
  const parts = fc.constantFrom(
    "litellm",
    "api",
    "key",
    "token",
    "session",
    "account",
    "tenant",
    "virtual",
    "openai",
    "x1",
  );
  const invented = fc.array(parts, { minLength: 1, maxLength: 3 }).map((words) => `x-${words.join("-")}`);
  const known = fc.constantFrom(
    ...["x-litellm-api-key", "x-portkey-api-key", "helicone-auth", "cf-aig-authorization", "openai-organization"],
    ...["openai-project", "x-goog-user-project", "x-auth-token", "x-amz-security-token", "ocp-apim-subscription-key"],
    ...["authorization", "x-api-key", "api-key", "x-goog-api-key", "anthropic-beta", "accept-language"],
  );
  for (const scope of ["user", "shared"]) {
    const behind = await provider(t);
    const gateway = await gatewayFor(t, yaml(behind.host, `{ ttl: 10m, scope: ${scope} }`, "", "", ""));
    let round = 0;
    await fc.assert(
      fc.asyncProperty(fc.oneof(known, invented), async (name) => {
        // Without an identity nothing is cached in the scope of a user: a key that is always the same is one.
        const base: Record<string, string> = name === "x-api-key" ? { "api-key": "mine" } : { "x-api-key": "mine" };
        const content = `round ${round++}`;
        const one = await ask(gateway, undefined, { content, headers: { ...base, [name]: "one" } });
        const other = await ask(gateway, undefined, { content, headers: { ...base, [name]: "two" } });
        const none = await ask(gateway, undefined, { content, headers: base });
        const again = await ask(gateway, undefined, { content, headers: { ...base, [name]: "one" } });
        assert.deepEqual(
          [one, other, none, again].map(({ cache }) => cache),
          ["miss", "miss", "miss", "hit"],
          name,
        );
      }),
      { numRuns: 25, seed: 1 },
    );
  }
});

test("headers that SDKs change from call to call do not lower the hit rate", async (t) => {
  const behind = await provider(t);
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }"));
  let hits = 0;
  for (let i = 0; i < 20; i++) {
    const headers = {
      "user-agent": `OpenAI/JS 4.${i}`,
      "x-stainless-retry-count": String(i),
      "x-stainless-timeout": String(600 + i),
      "x-stainless-lang": "js",
      "idempotency-key": `stainless-node-retry-${i}`,
      traceparent: `00-${String(i).padStart(32, "1")}-${String(i).padStart(16, "1")}-01`,
      "x-request-id": `id-${i}`,
      "x-forwarded-for": `10.0.0.${i}`,
      cookie: `a=${i}`,
    };
    if ((await ask(gateway, "key-a", { headers })).cache === "hit") hits += 1;
  }
  assert.equal(hits, 19);
});

test("a stream is replayed as a stream, byte for byte, and costs no tokens and no money", async (t) => {
  const behind = await provider(t);
  const budgets = "budgets: { limits: [{ name: all, tokens: 150, per: day }] }";
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }", `${KEYS}, ${budgets}`));
  const first = await ask(gateway, "key-a", { stream: true });
  for (let i = 0; i < 4; i++) {
    const again = await ask(gateway, "key-a", { stream: true });
    assert.deepEqual([again.status, again.cache, again.text], [200, "hit", first.text]);
    assert.match(again.headers.get("content-type") ?? "", /^text\/event-stream/);
  }
  const metric = async (name: string): Promise<number> => {
    const text = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
    return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
  };
  assert.equal(await metric("gateway_llm_cache_saved_tokens_total"), 400);
  assert.ok(Math.abs((await metric("gateway_llm_cache_saved_usd_total")) - 4 * (60 * 2.5e-6 + 40 * 1e-5)) < 1e-9);
  const spent = async (): Promise<unknown> => {
    const { budgets: all } = (await (await fetch(`${gateway.adminUrl}/debug/budgets`)).json()) as {
      budgets: { keys: { spent: number }[] }[];
    };
    return all[0]?.keys[0]?.spent;
  };
  await eventually("only the first call was charged", async () => (await spent()) === 100);
});

test("cache-control: no-cache asks again and keeps, no-store keeps nothing", async (t) => {
  const behind = await provider(t);
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }"));
  assert.equal((await ask(gateway, "key-a", { headers: { "cache-control": "no-store" } })).cache, "bypass");
  const first = await ask(gateway, "key-a");
  const fresh = await ask(gateway, "key-a", { headers: { "cache-control": "no-cache" } });
  assert.notEqual(fresh.text, first.text);
  assert.equal((await ask(gateway, "key-a")).text, fresh.text);
});

test("errors, error events, broken and very large answers are not kept", async (t) => {
  const behind = await provider(t, ({ messages: [message] }, response) => {
    switch (message?.content) {
      case "error":
        response.writeHead(400, { "content-type": "application/json" }).end('{"error":{"message":"no"}}');
        return true;
      case "event":
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end('data: {"error":{"message":"overloaded"}}\n\n');
        return true;
      case "broken":
        response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
        response.write("{");
        setImmediate(() => response.destroy());
        return true;
      case "large":
        response
          .writeHead(200, { "content-type": "application/json" })
          .end(JSON.stringify({ text: "x".repeat(600_000) }));
        return true;
      default:
        return false;
    }
  });
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }"));
  for (const content of ["error", "event", "broken", "large"]) {
    await ask(gateway, "key-a", { content }).catch(() => undefined);
    const again = await ask(gateway, "key-a", { content }).catch(() => undefined);
    assert.notEqual(again?.cache, "hit", content);
  }
});

for (const [what, streamBytes, isKept] of [
  ["enough for several", 2 * 1024 * 1024, true],
  ["too little", 128 * 1024, false],
] as const)
  test(`recorded answers are charged to the memory for responses: ${what}`, async (t) => {
    const content = "x".repeat(200 * 1024);
    const behind = await provider(t, (_body, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ choices: [{ index: 0, message: { role: "assistant", content } }] }));
      return true;
    });
    const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }"), { memoryLimits: { streamBytes } });
    // More than fits at once, so the charge must be released.
    for (let i = 0; i < 20; i++) {
      const more = { content: `question ${i}` };
      const first = await ask(gateway, "key-a", more);
      const again = await ask(gateway, "key-a", more);
      assert.deepEqual([first.cache, again.cache], ["miss", isKept ? "hit" : "miss"]);
      for (const { status, text } of [first, again])
        assert.deepEqual([status, JSON.parse(text).choices[0].message.content.length], [200, content.length]);
    }
  });

test("cached responses that clients do not read are charged to the memory for responses", async (t) => {
  // More than the buffers of a connection hold.
  const content = "x".repeat(480 * 1024);
  const behind = await provider(t, (_body, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ choices: [{ index: 0, message: { role: "assistant", content } }] }));
    return true;
  });
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }"), {
    memoryLimits: { streamBytes: 4 * 1024 * 1024 },
  });
  const client = connect(gateway.url());
  t.after(() => client.destroy());
  const sendQuestion = async (): Promise<{ readonly stream: ClientHttp2Stream; readonly cache: unknown }> => {
    const head = { ":method": "POST", ":path": "/v1/chat/completions", authorization: "Bearer key-a" };
    const stream = client.request({ ...head, "content-type": "application/json" });
    stream.end(question());
    const [headers] = (await once(stream, "response")) as [IncomingHttpHeaders];
    return { stream, cache: headers["x-gateway-cache"] };
  };
  const first = await sendQuestion();
  assert.equal(first.cache, "miss");
  await first.stream.resume().toArray();
  const outcomes: unknown[] = [];
  while (outcomes.length < 40 && outcomes.at(-1) !== "miss") outcomes.push((await sendQuestion()).cache);
  assert.deepEqual([outcomes[0], outcomes.at(-1)], ["hit", "miss"]);
});

test("a limit that is used up refuses before the cache, and guards look at replayed answers", async (t) => {
  const behind = await provider(t);
  const limit = "rateLimit: { local: [{ requests: 2, unit: Hours }] }";
  const gateway = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }", `${KEYS}, ${limit}`));
  assert.deepEqual([(await ask(gateway, "key-a")).status, (await ask(gateway, "key-a")).cache], [200, "hit"]);
  assert.equal((await ask(gateway, "key-a")).status, 429);
  const guard = 'ai: { promptGuard: { response: [{ regex: { action: mask, rules: [{ pattern: "answer" }] } }] } }';
  const guarded = await gatewayFor(t, yaml(behind.host, "{ ttl: 10m }", `${KEYS}, ${guard}`));
  for (const cache of ["miss", "hit"]) {
    const answer = await ask(guarded, "key-a");
    assert.equal(answer.cache, cache);
    assert.ok(!answer.text.includes("answer"), answer.text);
  }
});

test("replicas share answers over Redis, and ask the provider while it is away", {
  skip: skipWithoutRedis,
}, async (t) => {
  const redis = await startRedis();
  t.after(redis.close);
  const behind = await provider(t);
  const config = yaml(behind.host, "{ ttl: 10m }", KEYS, `, store: { redis: "${redis.url}", timeout: 10s }`);
  const [one, other] = [await gatewayFor(t, config), await gatewayFor(t, config)];
  assert.equal((await ask(one, "key-a")).cache, "miss");
  await eventually("kept", async () => (await ask(other, "key-a")).cache === "hit");
  await redis.stop();
  await eventually("degraded", async () =>
    (await (await fetch(`${other.adminUrl}/metrics`)).text()).includes('gateway_store_up{kind="redis"} 0'),
  );
  const answer = await ask(other, "key-a");
  assert.deepEqual([answer.status, answer.cache], [200, "miss"]);
});
