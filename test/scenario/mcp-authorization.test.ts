/** `mcpAuthorization` decides by what the server will read: whatever it cannot read itself does not pass. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  assertNothingForbidden,
  LAYOUTS,
  type Layout,
  MESSAGES,
  onStage,
  RULES,
  SEED,
} from "../support/mcp/authorization.ts";
import { confusedMessage, METHODS } from "../support/mcp/confused-messages.ts";
import { MODERN, modernPost, modernRequest } from "../support/mcp/modern-client.ts";
import { ALLOWED, type RecordingServer, SECRET } from "../support/mcp/recording-server.ts";

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
