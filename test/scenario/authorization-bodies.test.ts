/** Spec 2.3 and 8: rules and limits that read what a body says judge what the server behind the gateway will read. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import type { TestBackend } from "../support/backend.ts";
import type { TestGateway } from "../support/gateway.ts";
import { type RawClient, rawClient } from "../support/mcp/client.ts";
import { confusedMessage } from "../support/mcp/confused-messages.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { readings } from "../support/mcp/readings.ts";
import { ALLOWED, type RecordingServer, SECRET, startRecordingServer } from "../support/mcp/recording-server.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const RULE = 'llm.requestModel in ["cheap"]';
const CHAT = "/v1/chat/completions";

interface Setup {
  readonly gateway: TestGateway;
  readonly provider: TestBackend;
}

async function setUp(
  t: TestContext,
  kind: "ai" | "host",
  policies: { gateway?: object; route?: object; backend?: object },
): Promise<Setup> {
  const provider = await backendFor(t);
  const target =
    kind === "host"
      ? { host: provider.host }
      : { ai: { name: "p", provider: { openAICompatible: { baseUrl: `http://${provider.host}/v1` } } } };
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      gateways: { default: { port: 0, policies: policies.gateway ?? {} } },
      routes: [
        { name: "static", matches: [{ path: { exact: "/static" } }], policies: { directResponse: { status: 200 } } },
        { name: "llm", backends: [{ ...target, policies: policies.backend ?? {} }], policies: policies.route ?? {} },
      ],
    }),
  );
  return { gateway, provider };
}

async function post(
  gateway: TestGateway,
  path: string,
  body: string | Buffer | FormData,
  headers: Record<string, string> = { "content-type": "application/json" },
): Promise<{ status: number; text: string }> {
  const init = { method: "POST", headers: body instanceof FormData ? {} : headers, body: body as never };
  const response = await fetch(gateway.url() + path, init);
  return { status: response.status, text: await response.text() };
}

const asks = (model: string): string => JSON.stringify({ model, messages: [{ role: "user", content: "x" }] });

function form(model: string): FormData {
  const made = new FormData();
  made.set("model", model);
  made.set("image", new Blob(["x"]), "x.png");
  return made;
}

for (const kind of ["ai", "host"] as const) {
  for (const scope of ["gateway", "route", "backend"] as const) {
    test(`${kind}: a rule of the ${scope} about the model judges every way to name one`, async (t) => {
      const { gateway, provider } = await setUp(t, kind, { [scope]: { authorization: { rules: [RULE] } } });
      assert.equal((await post(gateway, CHAT, asks("cheap"))).status, 200);
      assert.equal((await post(gateway, "/v1/images/edits", form("cheap"))).status, 200);
      const sent = provider.received.length;
      const refused: [
        name: string,
        status: number,
        path: string,
        body: string | Buffer | FormData,
        headers?: object,
      ][] = [
        ["another model", 403, CHAT, asks("expensive")],
        ["another model as text", 403, CHAT, asks("expensive"), { "content-type": "text/plain" }],
        ["no model", 403, CHAT, '{"messages":[]}'],
        ["two models", 400, CHAT, asks("cheap").replace("{", '{"model":"expensive",')],
        ["two bodies", 400, CHAT, asks("cheap") + asks("expensive")],
        ["an encoded body", 415, CHAT, gzipSync(asks("cheap")), { "content-encoding": "gzip" }],
        ["a form", 403, "/v1/images/edits", form("expensive")],
        ["no JSON", kind === "ai" ? 400 : 403, CHAT, "model=cheap"],
        ["a model in the path", 403, "/v1beta/models/expensive:generateContent", '{"contents":[]}'],
      ];
      for (const [name, status, path, body, headers = { "content-type": "application/json" }] of refused) {
        const answer = await post(gateway, path, body, headers as Record<string, string>);
        assert.equal(answer.status, status, `${name}: ${answer.text}`);
      }
      assert.equal((await fetch(`${gateway.url()}/v1/models`)).status, 403, "a request without a body names no model");
      if (scope === "gateway") assert.equal((await fetch(`${gateway.url()}/static`)).status, 403);
      assert.equal(provider.received.length, sent, "nothing that was refused was forwarded");
    });
  }

  test(`${kind}: a denied call costs no request, and what is no call passes if the rule says so`, async (t) => {
    const { gateway } = await setUp(t, kind, {
      route: {
        authorization: { rules: [`!has(llm.requestModel) || ${RULE}`] },
        rateLimit: { local: [{ requests: 2, unit: "Hours" }] },
      },
    });
    const statuses: number[] = [];
    for (const model of ["expensive", "expensive", "expensive", "cheap"])
      statuses.push((await post(gateway, CHAT, asks(model))).status);
    statuses.push((await fetch(`${gateway.url()}/v1/models`)).status);
    statuses.push((await post(gateway, CHAT, asks("cheap"))).status);
    assert.deepEqual(statuses, [403, 403, 403, 200, 200, 429]);
  });

  test(`${kind}: a rule sees the path and headers of the client, not what later policies made of them`, async (t) => {
    const { gateway } = await setUp(t, kind, {
      gateway: { authorization: { rules: [`${RULE} && request.path == "/a/chat/completions"`] } },
      route: {
        authorization: { rules: [{ deny: `llm.requestModel == "cheap" && "x-internal" in request.headers` }] },
        urlRewrite: { path: { full: "/v1/chat/completions" } },
        requestHeaderModifier: { set: { "x-internal": "1" } },
      },
    });
    assert.equal((await post(gateway, "/a/chat/completions", asks("cheap"))).status, 200);
    assert.equal((await post(gateway, "/b/chat/completions", asks("cheap"))).status, 403);
    const headers = { "content-type": "application/json", "x-internal": "1" };
    assert.equal((await post(gateway, "/a/chat/completions", asks("cheap"), headers)).status, 403);
  });
}

test("allow rules of which one reads the model are judged together", async (t) => {
  const rules = [{ allow: 'request.headers["x-team"] == "ops"' }, { allow: RULE }];
  const { gateway } = await setUp(t, "ai", { route: { authorization: { rules } } });
  const ops = { "content-type": "application/json", "x-team": "ops" };
  assert.equal((await post(gateway, CHAT, asks("expensive"), ops)).status, 200);
  assert.equal((await post(gateway, CHAT, asks("cheap"))).status, 200);
  assert.equal((await post(gateway, CHAT, asks("expensive"))).status, 403);
});

test("a rule about what only the answer tells is warned about at load", async (t) => {
  const { gateway } = await setUp(t, "ai", { route: { authorization: { rules: ["llm.totalTokens < 10"] } } });
  assert.match(await gateway.logged("llm.totalTokens"), /known only when the call was made/);
});

async function onMcp(
  t: TestContext,
  policies: object,
  run: (client: RawClient, server: RecordingServer) => Promise<void>,
): Promise<void> {
  const server = await startRecordingServer("legacy");
  t.after(() => server.close());
  const gateway = await gatewayFor(t, mcpConfig([{ name: "t0", mcp: { url: server.url } }], {}, { policies }));
  const client = rawClient(`${gateway.url()}/mcp`);
  client.version = "2025-03-26";
  await client.initialize();
  await run(client, server);
}

const TOOL_RULE = `!has(mcp.tool) || mcp.tool.name == "${ALLOWED.tool}"`;

test("no reading of a message that arrives is a call that a rule about tools denies", async (t) => {
  await onMcp(t, { authorization: { rules: [TOOL_RULE] } }, async (client, server) => {
    const alone = confusedMessage((_kind, name) => name);
    const message = fc.oneof(
      alone,
      fc.array(alone, { minLength: 1, maxLength: 3 }).map((all) => `[${all.join(",")}]`),
    );
    await fc.assert(
      fc.asyncProperty(message, async (text) => {
        const { status } = await client.post(text);
        assert.ok([200, 202, 400, 403, 404].includes(status), `${status} to ${text}`);
        for (const { body } of server.received)
          for (const { method, name } of readings(body))
            assert.ok(method !== "tools/call" || name === ALLOWED.tool, `the server received ${body}`);
      }),
      { numRuns: 300, seed: 20_260_728 },
    );
    assert.ok(
      server.received.some(({ body }) => body.includes("tools/call")),
      "allowed calls arrived",
    );
  });
});

test("calls are judged one by one in a batch, and a call without an id does not pass", async (t) => {
  await onMcp(t, { authorization: { rules: [TOOL_RULE] } }, async (client, server) => {
    const call = (name: string, id?: number) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name } });
    assert.equal((await client.post([call(ALLOWED.tool, 1), call(ALLOWED.tool, 2)])).status, 200);
    assert.equal((await client.post([call(ALLOWED.tool, 3), call(SECRET.tool, 4)])).status, 403);
    assert.equal((await client.post(call(SECRET.tool))).status, 400);
    assert.equal((await client.post(call(SECRET.tool, 5))).status, 403);
    assert.ok(!server.received.some(({ body }) => body.includes(SECRET.tool)));
  });
});

test("a request limit keyed by the tool has a bucket for each; what calls no tool shares one", async (t) => {
  const local = [{ requests: 3, unit: "Hours", key: "mcp.tool.name" }];
  await onMcp(t, { rateLimit: { local } }, async (client) => {
    const status = async (method: string, params: object = {}): Promise<number> =>
      (await client.post({ jsonrpc: "2.0", id: 9, method, params })).status;
    const call = (name: string): Promise<number> => status("tools/call", { name });
    const calls: number[] = [];
    for (const name of ["a", "a", "a", "a", "b"]) calls.push(await call(name));
    assert.deepEqual(calls, [200, 200, 200, 429, 200]);
    // The handshake took two of the shared bucket.
    assert.deepEqual([await status("tools/list"), await status("ping")], [200, 429]);
    assert.equal(await call("b"), 200, "tools have their own");
    assert.equal((await client.post("no JSON")).status, 429, "what cannot be read is not exempt");
  });
});

test("a request limit that is asked before the body gets its request back from one that is asked after it", async (t) => {
  const local = [
    { requests: 5, unit: "Hours", key: '"all"' },
    { requests: 1, unit: "Hours", key: "mcp.tool.name" },
  ];
  await onMcp(t, { rateLimit: { local: local.map((entry) => ({ ...entry })) } }, async (client) => {
    const call = async (name: string): Promise<number> =>
      (await client.post({ jsonrpc: "2.0", id: 9, method: "tools/call", params: { name } })).status;
    // initialize passes, notifications/initialized is refused by the shared bucket and costs nothing.
    const statuses: number[] = [];
    for (const name of ["a", "a", "a", "b", "c", "d", "e"]) statuses.push(await call(name));
    assert.deepEqual(statuses, [200, 429, 429, 200, 200, 200, 429]);
  });
});
