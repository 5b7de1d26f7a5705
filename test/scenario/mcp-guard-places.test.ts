/**
 * `resultGuard` through a running gateway: a secret in every message of a server that a client or its model reads, with
 * guards that mask and guards that reject, by patterns and by a webhook, on a route with one target and on a route with
 * two.
 */
import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";

const SECRET = "secret-123";
const B64 = Buffer.from(`a file with ${SECRET} in it`).toString("base64");

interface Reply {
  readonly result?: Json;
  readonly error?: Json;
  /** Notifications and requests before the answer. */
  readonly before?: readonly Json[];
}

const described = { description: `uses ${SECRET}` };
const INITIALIZED = {
  capabilities: { tools: {}, prompts: {}, resources: {}, logging: {} },
  serverInfo: { name: "s", version: "1", title: `title ${SECRET}` },
  instructions: `Use ${SECRET} for everything.`,
};
const LISTS: Readonly<Record<string, Json>> = {
  "tools/list": {
    tools: [
      { name: "call", inputSchema: { type: "object", properties: { a: described } }, ...described },
      { name: "plain", description: "nothing", inputSchema: { type: "object" } },
    ],
  },
  "prompts/list": { prompts: [{ name: "p", ...described }] },
  "resources/list": { resources: [{ uri: "file:///a", name: "a", ...described }] },
  "resources/templates/list": { resourceTemplates: [{ uriTemplate: "file:///{x}", name: "t", ...described }] },
};

/** By what the server does with a call of the tool; `{}` stands for a plain result. */
const CALLS: Readonly<Record<string, Reply>> = {
  "a text": { result: { content: [{ type: "text", text: `x ${SECRET}` }] } },
  "two items": {
    result: {
      content: [
        { type: "text", text: "x sec" },
        { type: "text", text: "ret-123 y" },
      ],
    },
  },
  "three items": { result: { content: ["secret", "-", "123"].map((text) => ({ type: "text", text })) } },
  "two items with annotations": {
    result: {
      content: [
        { type: "text", text: "x sec", annotations: { audience: ["user"] } },
        { type: "text", annotations: { priority: 1 }, text: "ret-123 y" },
      ],
    },
  },
  "structured content": { result: { content: [], structuredContent: { a: [{ b: SECRET, [SECRET]: 1 }] } } },
  "an embedded file": { result: { content: [{ type: "resource", resource: { uri: "file:///a", blob: B64 } }] } },
  _meta: { result: { content: [], _meta: { note: SECRET } } },
  "the message of an error": { error: { code: -32000, message: `failed with ${SECRET}` } },
  "the data of an error": { error: { code: -32000, message: "failed", data: { query: [SECRET] } } },
  progress: {
    before: [{ method: "notifications/progress", params: { progressToken: "t", progress: 1, message: SECRET } }],
  },
  "a log message": {
    before: [{ method: "notifications/message", params: { level: "info", data: SECRET } }],
  },
  "a log message with structure": {
    before: [
      { method: "notifications/message", params: { level: "info", logger: SECRET, data: { text: `a ${SECRET}` } } },
    ],
  },
};

const GUARDS = {
  mask: { action: "mask", isExternal: false },
  reject: { action: "reject", isExternal: false },
  "mask-webhook": { action: "mask", isExternal: true },
  "reject-webhook": { action: "reject", isExternal: true },
} as const;
type Guard = keyof typeof GUARDS;

let backend: TestBackend;
let webhook: TestBackend;
/** The texts that the webhook received. */
const checked: string[] = [];
let gateway: TestGateway;
let reply: Reply = {};

function answer(message: Json): Reply {
  const { method, params = {} } = message;
  if (method === "initialize") return { result: { protocolVersion: params.protocolVersion, ...INITIALIZED } };
  if (LISTS[method]) return { result: LISTS[method] };
  if (method === "tools/call") return { result: { content: [{ type: "text", text: "done" }] }, ...reply };
  if (method === "prompts/get")
    return { result: { messages: [{ role: "user", content: { type: "text", text: `p ${SECRET}` } }], ...described } };
  if (method === "resources/read")
    return {
      result: {
        contents: [
          { uri: "file:///a", text: `r ${SECRET}` },
          { uri: "file:///b", blob: B64 },
        ],
      },
    };
  if (method === "completion/complete") return { result: { completion: { values: [SECRET] } } };
  return { result: {} };
}

function serve(request: IncomingMessage, response: ServerResponse): void {
  let text = "";
  request.on("data", (chunk) => {
    text += chunk;
  });
  request.on("end", () => {
    const message = text === "" ? undefined : (JSON.parse(text) as Json);
    if (message === undefined) return void response.writeHead(405).end();
    if (message.id === undefined || message.method === undefined) return void response.writeHead(202).end();
    const { before: first = [], result, error } = answer(message);
    const last = { jsonrpc: "2.0", id: message.id, ...(error === undefined ? { result } : { error }) };
    response.writeHead(200, { "content-type": "text/event-stream" });
    // The gateway has progress tokens of its own.
    const token = JSON.stringify(message.params?._meta?.progressToken ?? "t");
    for (const one of [...first.map((own) => ({ jsonrpc: "2.0", ...own })), last])
      response.write(
        `event: message\ndata: ${JSON.stringify(one).replace('"progressToken":"t"', `"progressToken":${token}`)}\n\n`,
      );
    response.end();
  });
}

function judge(request: IncomingMessage, response: ServerResponse): void {
  let body = "";
  request.on("data", (chunk) => {
    body += chunk;
  });
  request.on("end", () => {
    const { texts } = JSON.parse(body) as { texts: string[] };
    checked.push(...texts);
    const masked = texts.map((text) => text.replace(/secret-\d+/g, "<masked>"));
    const isFound = masked.some((text, i) => text !== texts[i]);
    const found = request.url === "/mask" ? { action: "mask", texts: masked } : { action: "reject" };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(isFound ? found : { action: "pass" }));
  });
}

before(async () => {
  backend = await startBackend(serve);
  webhook = await startBackend(judge);
  const target = (name: string, { action, isExternal }: (typeof GUARDS)[Guard]): object => ({
    name,
    mcp: { url: `http://${backend.host}/mcp` },
    tools: {
      resultGuard: [
        {
          ...(isExternal
            ? { webhook: { url: `http://${webhook.host}/${action}`, timeout: "60s" } }
            : { regex: { action, rules: [{ pattern: "(?i)secret-\\d+" }] } }),
          rejection: { body: "not for you" },
        },
      ],
    },
  });
  const routes = Object.entries(GUARDS).flatMap(([name, guard]) =>
    [1, 2].map((count) => ({
      matches: [{ path: { exact: `/${name}${count}` } }],
      backends: [{ mcp: { targets: Array.from({ length: count }, (_, i) => target(`t${i}`, guard)) } }],
    })),
  );
  gateway = await startGateway(JSON.stringify({ gateways: { default: { port: 0, address: "127.0.0.1" } }, routes }));
});
after(async () => {
  await gateway?.close();
  await backend?.close();
  await webhook?.close();
});

async function connect(guard: Guard, count: number): Promise<{ client: RawClient; opened: Json; prefix: string }> {
  const client = rawClient(`${gateway.url()}/${guard}${count}`);
  const { text } = await client.initialize({ capabilities: { sampling: {}, elicitation: {} } });
  return { client, opened: text, prefix: count === 1 ? "" : "t0_" };
}

/** Everything that the client read, and the same with base64 decoded. */
function readable(text: string): string {
  return `${text}\n${text.replace(/[A-Za-z0-9+/]{16,}={0,2}/g, (one) => Buffer.from(one, "base64").toString())}`;
}

for (const guard of Object.keys(GUARDS) as Guard[])
  for (const count of [1, 2]) {
    const { action, isExternal } = GUARDS[guard];
    test(`${guard}, ${count} target(s): lists and what a server says of itself pass patterns only [M27]`, async () => {
      checked.length = 0;
      const { client, opened } = await connect(guard, count);
      if (isExternal) {
        assert.match(JSON.stringify(await client.request("tools/list")), /uses secret-123/);
        assert.deepEqual(checked, []);
        return;
      }
      assert.doesNotMatch(opened, /secret-1/);
      assert.match(opened, action === "mask" ? /Use <masked> for everything/ : /not for you/);
      for (const method of Object.keys(LISTS)) {
        const text = JSON.stringify(await client.request(method));
        assert.doesNotMatch(text, /secret-1/, method);
        if (action === "mask") assert.match(text, /uses <masked>/, method);
        if (method === "tools/list") assert.match(text, /nothing/, "a tool without a match stays");
      }
    });

    test(`${guard}, ${count} target(s): everything about a call passes the guard [M27]`, async () => {
      const { client, prefix } = await connect(guard, count);
      for (const [what, next] of Object.entries(CALLS)) {
        reply = next;
        const params = { name: `${prefix}call`, arguments: {}, _meta: { progressToken: "t" } };
        const { text } = await client.post({ jsonrpc: "2.0", id: 5, method: "tools/call", params });
        assert.doesNotMatch(readable(text), /secret-1|ret-123/, `${what}: ${text}`);
        if (next.before) assert.match(text, /done/, what);
        if (action === "mask" && what !== "an embedded file") assert.match(text, /<masked>/, what);
        if (action === "reject" && !next.before) assert.match(text, /not for you/, what);
        if (what === "progress" && action === "mask") assert.match(text, /"progressToken":"t"/);
      }
    });

    test(`${guard}, ${count} target(s): prompts, resources and completions pass the guard [M27]`, async () => {
      const { client, prefix } = await connect(guard, count);
      const requests: readonly [string, Json][] = [
        ["prompts/get", { name: `${prefix}p` }],
        ["resources/read", { uri: count === 1 ? "file:///a" : "t0+file:///a" }],
        [
          "completion/complete",
          { ref: { type: "ref/prompt", name: `${prefix}p` }, argument: { name: "a", value: "s" } },
        ],
      ];
      for (const [method, params] of requests) {
        const text = JSON.stringify(await client.request(method, params));
        assert.doesNotMatch(readable(text), /secret-1/, method);
        if (count === 1) assert.match(text, action === "mask" ? /<masked>/ : /not for you/, method);
      }
    });

    test(`${guard}, ${count} target(s): questions of a server to the client pass the guard [M27]`, async () => {
      const { client, prefix } = await connect(guard, count);
      for (const [method, params] of [
        [
          "sampling/createMessage",
          { messages: [{ role: "user", content: { type: "text", text: `q ${SECRET}` } }], maxTokens: 5 },
        ],
        ["elicitation/create", { message: `Enter ${SECRET}`, requestedSchema: { type: "object", properties: {} } }],
      ] as const) {
        reply = { before: [{ id: 77, method, params }] };
        const called = { name: `${prefix}call`, arguments: {} };
        const { text } = await client.post({ jsonrpc: "2.0", id: 6, method: "tools/call", params: called });
        assert.doesNotMatch(text, /secret-1/, method);
        assert.equal(text.includes(method), action === "mask", method);
      }
    });
  }
