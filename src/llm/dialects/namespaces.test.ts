/** Tools in namespaces (Codex) at providers without namespaces: flat names, calls and history mapped back. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { context, request, response, stream } from "../../../test/support/llm/translate.ts";
import type { Members } from "../../json/json.ts";
import type { Format } from "../request/dialect.ts";
import type { TranslationContext } from "./translation.ts";

const PROVIDERS: readonly Format[] = ["chat", "messages", "generateContent", "converse"];
const tool = (name: string, extra: object = {}): Members => ({
  type: "function",
  name,
  parameters: { type: "object", properties: {} },
  ...extra,
});
const namespace = (name: string, ...tools: Members[]): Members => ({
  type: "namespace",
  name,
  description: `Tools of ${name}`,
  tools,
});

/** Returns the names in the provider's request, in order of appearance, whatever the provider calls the field. */
function sentNames(provider: Format, body: Members, using: TranslationContext = context()): string[] {
  const sent = request("responses", provider, { model: "m", input: "x", ...body }, using);
  return [...JSON.stringify(sent.tools ?? sent.toolConfig).matchAll(/"name":"([^"]*)"/g)].map(([, name]) => name ?? "");
}

for (const provider of PROVIDERS) {
  test(`${provider}: tools in namespaces get flat names, and history uses the same`, () => {
    const using = context();
    const call = { type: "function_call", call_id: "c1", name: "lookup", namespace: "mcp__t", arguments: "{}" };
    const body = {
      model: "m",
      input: [{ role: "user", content: "x" }, call, { type: "function_call_output", call_id: "c1", output: "found" }],
      tools: [tool("exec"), namespace("mcp__t", tool("lookup"), tool("define")), namespace("agents", tool("lookup"))],
      tool_choice: { type: "function", name: "lookup", namespace: "agents" },
    };
    const sent = JSON.stringify(request("responses", provider, body, using));
    for (const name of ["exec", "mcp__t__lookup", "mcp__t__define", "agents__lookup"])
      assert.ok(sent.includes(`"name":"${name}"`), `${name}: ${sent}`);
    assert.equal(sent.match(/mcp__t__lookup/g)?.length, provider === "generateContent" ? 3 : 2, "tool, call, result");
    assert.ok(sent.match(/agents__lookup/g)?.length === 2, "tool and choice");
    assert.deepEqual(using.losses.names, []);
  });

  test(`${provider}: names that collide after flattening stay different`, () => {
    const names = sentNames(provider, {
      tools: [
        namespace("a", tool("b__c")),
        namespace("a__b", tool("c")),
        namespace("x", tool("y")),
        tool("x__y"),
        namespace("n".repeat(60), tool("first"), tool("second")),
        namespace("über", tool("1.2")),
      ],
    });
    assert.equal(names.length, 7);
    assert.equal(new Set(names).size, 7, names.join(" "));
    assert.ok(names.includes("x__y"), "a tool without a namespace keeps its name");
    for (const name of names) assert.match(name, /^[A-Za-z0-9_-]{1,64}$/);
  });
}

test("names do not depend on the other requests of a conversation", () => {
  const tools = [namespace("a", tool("b__c")), namespace("a__b", tool("c")), namespace("n".repeat(70), tool("long"))];
  assert.deepEqual(sentNames("messages", { tools }), sentNames("messages", { tools }));
});

test("calls in responses and streams have the namespace and the client's name", () => {
  const using = context();
  const tools = [namespace("mcp__t", tool("lookup"), { type: "custom", name: "patch" }), namespace("a", tool("b__c"))];
  const flat = sentNames("messages", { tools: [...tools, namespace("a__b", tool("c"))] }, using);
  const answer = {
    id: "m",
    model: "m",
    role: "assistant",
    content: flat.map((name, i) => ({ type: "tool_use", id: `t${i}`, name, input: { input: "text" } })),
    stop_reason: "tool_use",
    usage: { input_tokens: 1, output_tokens: 1 },
  };
  const said = response("responses", "messages", answer, using).output as Members[];
  const called = (items: readonly Members[]) => items.map(({ type, namespace, name }) => [type, namespace, name]);
  const expected = [
    ["function_call", "mcp__t", "lookup"],
    ["custom_tool_call", "mcp__t", "patch"],
    ["function_call", "a", "b__c"],
    ["function_call", "a__b", "c"],
  ];
  assert.deepEqual(called(said), expected);
  const events = stream(
    "responses",
    "messages",
    [
      { type: "message_start", message: { id: "m", model: "m", usage: { input_tokens: 1, output_tokens: 1 } } },
      ...answer.content.flatMap((block, index): Members[] => [
        { type: "content_block_start", index, content_block: { ...block, input: {} } },
        { type: "content_block_delta", index, delta: { type: "input_json_delta", partial_json: '{"input":"text"}' } },
        { type: "content_block_stop", index },
      ]),
      { type: "message_delta", delta: { stop_reason: "tool_use" }, usage: { output_tokens: 1 } },
      { type: "message_stop" },
    ],
    using,
  );
  for (const type of ["response.output_item.added", "response.output_item.done"])
    assert.deepEqual(
      called(events.filter(({ event }) => event === type).map(({ data }) => (data as Members).item as Members)),
      expected,
    );
  const done = events.filter(({ event }) => event === "response.function_call_arguments.done");
  assert.deepEqual(
    done.map(({ data }) => (data as Members).name),
    ["lookup", "b__c", "c"],
  );
});

test("a tool of another kind in a namespace is named as dropped", () => {
  const using = context();
  sentNames("messages", { tools: [namespace("n", tool("f"), { type: "web_search" })] }, using);
  assert.deepEqual(using.losses.names, ["tools[0].tools[1].type"]);
});
