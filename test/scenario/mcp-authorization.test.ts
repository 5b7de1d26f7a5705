/** `mcpAuthorization` decides by what the server will read: whatever it cannot read itself does not pass. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { eventually } from "../support/eventually.ts";
import { startGateway } from "../support/gateway.ts";
import { LEGACY_HEADERS, openStream, type RawClient, rawClient } from "../support/mcp/client.ts";
import { confusedMessage, METHODS } from "../support/mcp/confused-messages.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { MODERN, modernPost, modernRequest } from "../support/mcp/modern-client.ts";
import { readings } from "../support/mcp/readings.ts";
import { ALLOWED, type RecordingServer, SECRET, startRecordingServer } from "../support/mcp/recording-server.ts";

const RULES = [
  `mcp.tool.name == "${ALLOWED.tool}"`,
  `mcp.prompt.name == "${ALLOWED.prompt}"`,
  `mcp.resource.uri == "${ALLOWED.resource}"`,
  { deny: `mcp.tool.name == "${SECRET.tool}"` },
];
const PERMITTED: Readonly<Record<string, readonly string[]>> = {
  "tools/call": [ALLOWED.tool],
  "prompts/get": [ALLOWED.prompt],
  "completion/complete": [ALLOWED.prompt, ALLOWED.resource],
  "resources/read": [ALLOWED.resource],
  "resources/subscribe": [ALLOWED.resource],
  "resources/unsubscribe": [ALLOWED.resource],
  "subscriptions/listen": [ALLOWED.resource],
};
/** For each layout and transport. `CONFUSED_MESSAGES=2000 CONFUSED_SEED=7 npm test -- test/scenario/mcp-authorization` is the long run. */
const MESSAGES = Number(process.env.CONFUSED_MESSAGES ?? 80);
const SEED = Number(process.env.CONFUSED_SEED ?? 20_260_728);
const FORBIDDEN = new Set(Object.values(SECRET));

interface Layout {
  readonly name: string;
  readonly eras: readonly ("legacy" | "modern")[];
  readonly prefixMode?: string;
  readonly isPrefixed?: true;
}

const LAYOUTS: readonly Layout[] = [
  { name: "one server", eras: ["legacy"] },
  { name: "one server of 2026", eras: ["modern"] },
  { name: "one server with prefixes", eras: ["legacy"], prefixMode: "always", isPrefixed: true },
  { name: "two servers", eras: ["legacy", "modern"], isPrefixed: true },
  { name: "two servers without prefixes", eras: ["legacy", "legacy"], prefixMode: "never" },
];

type Send = (text: string) => Promise<number>;

interface Stage {
  readonly servers: readonly RecordingServer[];
  readonly url: string;
  readonly client: RawClient;
  spell(kind: "name" | "uri", name: string): string;
  transports(): Promise<{ name: string; send: Send; close(): Promise<void> }[]>;
}

async function onStage(layout: Layout, run: (stage: Stage) => Promise<void>, rules: unknown[] = RULES): Promise<void> {
  const servers = await Promise.all(layout.eras.map((era) => startRecordingServer(era)));
  const targets = servers.map(({ url }, i) => ({ name: `t${i}`, mcp: { url } }));
  const settings = layout.prefixMode === undefined ? {} : { prefixMode: layout.prefixMode };
  const policies = rules.length === 0 ? {} : { policies: { mcpAuthorization: { rules } } };
  const gateway = await startGateway(mcpConfig(targets, settings, policies));
  try {
    const url = `${gateway.url()}/mcp`;
    const client = rawClient(url);
    client.version = "2025-03-26";
    await client.initialize();
    await run({
      servers,
      url,
      client,
      spell: (kind, name) => (layout.isPrefixed ? `t0${kind === "uri" ? "+" : "_"}${name}` : name),
      transports: () => transports(gateway.url(), client),
    });
  } finally {
    await gateway.close();
    await Promise.all(servers.map((server) => server.close()));
  }
}

/** The same text over everything that a client can speak. */
async function transports(
  base: string,
  client: RawClient,
): Promise<{ name: string; send: Send; close(): Promise<void> }[]> {
  const old = await openStream(`${base}/sse`, { headers: { accept: "text/event-stream" } });
  await eventually("the endpoint is named", () => old.events.length > 0);
  const endpoint = `${base}${old.events[0]?.data}`;
  const post = async (url: string, headers: Record<string, string>, body: string): Promise<number> => {
    const response = await fetch(url, { method: "POST", headers, body });
    // The stream of a subscription has no end.
    if (body.includes("subscriptions")) await response.body?.cancel();
    else await response.arrayBuffer();
    return response.status;
  };
  const params = { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "old", version: "1" } };
  await post(endpoint, LEGACY_HEADERS, JSON.stringify({ jsonrpc: "2.0", id: "i", method: "initialize", params }));
  const answered = (id: string): Promise<void> =>
    eventually(`the answer to ${id}`, () =>
      old.events.some(({ event, data }) => event === "message" && JSON.parse(data).id === id),
    );
  await answered("i");
  const meta = modernRequest("x");
  return [
    { name: "streamable HTTP", send: async (text) => (await client.post(text)).status, close: async () => undefined },
    {
      name: "HTTP+SSE",
      send: (text) => post(endpoint, LEGACY_HEADERS, text),
      // Answers come over the stream: a last one says that those before it were served.
      close: async () => {
        await post(endpoint, LEGACY_HEADERS, '{"jsonrpc":"2.0","id":"last","method":"tools/list"}');
        await answered("last");
        old.close();
      },
    },
    {
      name: "2026",
      // The envelope and the headers are as they must be, so that only the rest is judged.
      send: (text) => {
        const envelope = JSON.stringify(JSON.parse(meta.body).params._meta);
        const method = METHODS.find((one) => text.includes(one)) ?? METHODS.find((one) => text.includes(escaped(one)));
        const name = [...Object.values(ALLOWED), ...FORBIDDEN].find((one) => text.includes(one));
        const headers = { ...meta.headers, "mcp-method": method ?? "", "mcp-name": name ?? "" };
        return post(client.url, headers, text.replace('"arguments"', `"_meta":${envelope},"arguments"`));
      },
      close: async () => undefined,
    },
  ];
}

function escaped(method: string): string {
  return method.replace("/", "\\/");
}

/** How many messages of a server were looked at already. */
const judged = new WeakMap<RecordingServer, number>();

function assertNothingForbidden(servers: readonly RecordingServer[]): void {
  for (const server of servers) {
    const fresh = server.received.slice(judged.get(server) ?? 0);
    judged.set(server, server.received.length);
    for (const { body, headers } of fresh) {
      const bad = readings(body).filter(({ method, name }) => !PERMITTED[method]?.includes(name));
      assert.deepEqual(bad, [], `the server received ${body}`);
      assert.ok(!FORBIDDEN.has(String(headers["mcp-name"])), `the server received the header for ${body}`);
    }
  }
}

for (const layout of LAYOUTS) {
  test(`${layout.name}: no reading of any message that arrives is a forbidden call`, async () => {
    await onStage(layout, async ({ servers, spell, transports: open }) => {
      for (const { name, send, close } of await open()) {
        const before = count(servers);
        await fc.assert(
          fc.asyncProperty(confusedMessage(spell), async (text) => {
            const status = await send(text);
            assert.ok([200, 202, 400, 404].includes(status), `${name} answered ${status} to ${text}`);
            assertNothingForbidden(servers);
          }),
          { numRuns: MESSAGES, seed: SEED },
        );
        assert.ok(count(servers) > before, `nothing at all arrived over ${name}`);
        await close();
        assertNothingForbidden(servers);
      }
    });
  });

  test(`${layout.name}: lists show what is allowed, calls of it run, calls of the rest do not`, async () => {
    await onStage(layout, async ({ client, servers, spell, url }) => {
      const lists = { tool: ["tools", "name"], prompt: ["prompts", "name"], resource: ["resources", "uri"] } as const;
      for (const [kind, [list, key]] of Object.entries(lists)) {
        const wanted = ALLOWED[kind as keyof typeof ALLOWED];
        const { result } = await client.request(`${list}/list`);
        const shown = result[list].map((item: Record<string, string>) => item[key]);
        assert.ok(shown.includes(spell(key, wanted)), `${list} lacks ${wanted}`);
        for (const one of shown) assert.ok(one.endsWith(wanted), `${list} shows ${one}`);
        const modern = (await modernPost(url, `${list}/list`)).message.result;
        assert.deepEqual(
          modern[list].map((item: Record<string, string>) => item[key]),
          shown,
        );
      }
      assert.equal((await client.call(spell("name", ALLOWED.tool))).result.content[0].text, "ran");
      assert.match((await client.call(spell("name", SECRET.tool))).error.message, /Unknown tool/);
      const modern = await modernPost(url, "tools/call", { name: spell("name", ALLOWED.tool) });
      assert.equal(modern.message.result.content[0].text, "ran");
      const secret = await modernPost(url, "tools/call", { name: spell("name", SECRET.tool) });
      assert.match(secret.message.error.message, /Unknown tool/);
      assertNothingForbidden(servers);
    });
  });
}

function count(servers: readonly RecordingServer[]): number {
  return servers.reduce((sum, { received }) => sum + received.length, 0);
}

const REFUSED: readonly { name: string; text: string; code: number }[] = [
  ...['["secret_tool"]', '{"a":"secret_tool"}', "1", "null", '"a\\ud800"'].map((value) => ({
    name: `the name ${value}`,
    text: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${value}}}`,
    code: -32602,
  })),
  { name: "no name", text: '{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{}}', code: -32602 },
  { name: "no parameters", text: '{"jsonrpc":"2.0","id":1,"method":"tools/call"}', code: -32602 },
  {
    name: "a URI in a list",
    text: '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":["file:///secret"]}}',
    code: -32602,
  },
  {
    name: "a subscription to a URI in a list",
    text: '{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":["file:///secret"]}}',
    code: -32602,
  },
  ...['"ref/tool"', "null", '["ref/prompt"]', '"constructor"'].map((type) => ({
    name: `a reference of the type ${type}`,
    text: `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":${type},"name":"greet"}}}`,
    code: -32602,
  })),
  {
    name: "a reference with a name and a URI",
    text: '{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"greet","uri":"file:///secret"}}}',
    code: -32602,
  },
  ...["Name", "NAME", "n\\u0041me"].map((key) => ({
    name: `a second name as ${key}`,
    text: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","${key}":"secret_tool"}}`,
    code: -32602,
  })),
  {
    name: "the name twice, once escaped",
    text: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","n\\u0061me":"secret_tool"}}',
    code: -32700,
  },
  {
    name: "the parameters twice",
    text: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"},"params":{"name":"secret_tool"}}',
    code: -32700,
  },
  {
    name: "a second method as Method",
    text: '{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"secret_tool"}}',
    code: -32600,
  },
  {
    name: "parameters as param\u017f",
    text: '{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{"name":"secret_tool"}}',
    code: -32600,
  },
  ...METHODS.map((method) => ({
    name: `${method} without an id`,
    text: `{"jsonrpc":"2.0","method":"${method}","params":{"name":"secret_tool","uri":"file:///secret"}}`,
    code: -32600,
  })),
  {
    name: "a notification that becomes a call in another reading",
    text: '{"jsonrpc":"2.0","method":"notifications/x","Method":"tools/call","Id":1,"params":{"name":"secret_tool"}}',
    code: -32600,
  },
  {
    name: "an answer that becomes a call in another reading",
    text: '{"jsonrpc":"2.0","id":1,"result":{},"METHOD":"tools/call","params":{"name":"secret_tool"}}',
    code: -32600,
  },
  { name: "a mark of byte order", text: '\ufeff{"jsonrpc":"2.0","id":1,"method":"ping"}', code: -32700 },
  {
    name: "an envelope that is a list",
    text: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":["x"]}}',
    code: -32602,
  },
];

for (const rules of [RULES, []]) {
  test(`what could be read in two ways is refused ${rules.length === 0 ? "without" : "with"} a policy`, async () => {
    for (const layout of LAYOUTS.slice(0, 4)) {
      await onStage(
        layout,
        async ({ client, servers }) => {
          const before = count(servers);
          for (const { name, text, code } of REFUSED) {
            const answer = await client.post(text);
            assert.equal(answer.status, 400, `${layout.name}, ${name}: ${answer.text}`);
            assert.equal(answer.message.error.code, code, `${layout.name}, ${name}: ${answer.text}`);
            const modern = await client.post(text, { "mcp-protocol-version": MODERN });
            assert.equal(modern.status, 400, `${layout.name}, ${name} in 2026: ${modern.text}`);
          }
          assert.equal(count(servers), before);
        },
        rules,
      );
    }
  });
}

test("a batch is refused as a whole when one of its messages is", async () => {
  await onStage(LAYOUTS[0] as Layout, async ({ client, servers }) => {
    const before = count(servers);
    const good = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}';
    const bad = '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"secret_tool"}}';
    assert.equal((await client.post(`[${good},${bad}]`)).status, 400);
    assert.equal(count(servers), before);
    const hidden = '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"secret_tool"}}';
    const { messages } = await client.post(`[${good},${hidden}]`);
    assert.match(messages.find(({ id }) => id === 2).error.message, /Unknown tool/);
    assertNothingForbidden(servers);
  });
});

test("methods that the protocol does not know pass only where no policy must judge them", async () => {
  const methods = ["tools/invoke", "Tools/Call", "tools/call ", "constructor", "__proto__"];
  const text = (method: string, id: string): string =>
    `{"jsonrpc":"2.0",${id}"method":"${method}","params":{"name":"${SECRET.tool}"}}`;
  for (const rules of [RULES, []]) {
    await onStage(
      LAYOUTS[0] as Layout,
      async ({ client, servers }) => {
        for (const method of methods) {
          const before = count(servers);
          const request = await client.post(text(method, '"id":1,'));
          const note = await client.post(text(method, ""));
          if (rules.length === 0) assert.deepEqual([request.message.result !== undefined, note.status], [true, 202]);
          else assert.deepEqual([request.message.error.code, note.status], [-32601, 400], method);
          assert.equal(count(servers) - before, rules.length === 0 ? 2 : 0, method);
        }
      },
      rules,
    );
  }
});

test("a 2026 call needs the headers that repeat its body", async () => {
  await onStage(LAYOUTS[1] as Layout, async ({ url, servers }) => {
    const params = { name: ALLOWED.tool };
    const wrong: Record<string, string>[] = [
      { "mcp-name": SECRET.tool },
      { "mcp-name": "" },
      { "mcp-name": `${ALLOWED.tool}, ${SECRET.tool}` },
      { "mcp-method": "tools/list" },
      { "mcp-method": "" },
      { "mcp-protocol-version": "2025-11-25" },
    ];
    const before = count(servers);
    for (const headers of wrong)
      assert.equal((await modernPost(url, "tools/call", params, { headers })).status, 400, JSON.stringify(headers));
    const { body, headers } = modernRequest("tools/call", params);
    const { "mcp-name": _, ...withoutName } = headers;
    assert.equal((await fetch(url, { method: "POST", headers: withoutName, body })).status, 400);
    // What one header says of another member of the body is not taken from it.
    const read = await modernPost(
      url,
      "resources/read",
      { uri: ALLOWED.resource, name: SECRET.tool },
      { headers: { "mcp-name": ALLOWED.resource } },
    );
    assert.equal(read.status, 200);
    assert.equal(servers[0]?.received.at(-1)?.headers["mcp-name"], ALLOWED.resource);
    assert.ok(count(servers) > before);
  });
});
