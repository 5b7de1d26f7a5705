/**
 * Servers with OpenAI's API that lack the Responses API, or namespaces of tools in it: the first rejection is recognized,
 * the call is repeated as a chat completion, and later calls are translated at once. Members and roles of chat
 * completions that a server rejects are omitted in the same way. Every other error reaches the client.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const NOT_FOUND = { detail: "Not Found" };
const UNKNOWN_MODEL = { error: { message: "The model `m` does not exist", code: "model_not_found" } };
const UNKNOWN_RESPONSE = {
  error: { message: "Previous response with id 'resp_1' not found.", type: "invalid_request_error" },
};
const NO_NAMESPACE = { error: { message: "Input should be 'function' or 'web_search', input: 'namespace'" } };
const OTHER = { error: { message: "temperature must be at most 2" } };

const CHAT = {
  id: "c",
  object: "chat.completion",
  created: 1,
  model: "m",
  choices: [{ index: 0, message: { role: "assistant", content: "hello" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
};
const RESPONSE = { id: "resp_1", object: "response", created_at: 1, status: "completed", model: "m", output: [] };

const PLAIN_TOOL = { type: "function", name: "read", parameters: { type: "object", properties: {} } };
const NAMESPACE = { type: "namespace", name: "files", description: "Files", tools: [PLAIN_TOOL] };

type Rejection = readonly [status: number, body: object];

/** `reject` responds to requests of the Responses API, and `rejectChat` to chat completions. */
async function start(
  t: TestContext,
  reject: (body: string) => Rejection | undefined,
  provider = "openAICompatible",
  rejectChat: () => Rejection | undefined = () => undefined,
) {
  const paths: string[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const path = request.url ?? "";
      paths.push(path);
      const [status, body] = path.endsWith("/responses")
        ? (reject(text) ?? [200, RESPONSE])
        : (rejectChat() ?? [200, CHAT]);
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    });
  });
  const settings = provider === "openAI" ? "openAI: {}" : `openAICompatible: { baseUrl: "http://${host}/v1" }`;
  const backend = `{ ai: { name: a, provider: { ${settings} }, hostOverride: "${host}", auth: { key: k } } }`;
  const gateway = await gatewayFor(t, `gateways: { default: { port: 0 } }\nroutes: [{ backends: [${backend}] }]\n`);
  const ask = async (extra: object = {}): Promise<{ status: number; text: string }> => {
    const response = await fetch(`${gateway.url()}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "m", input: "Hi", ...extra }),
    });
    return { status: response.status, text: await response.text() };
  };
  return { ask, paths, gateway };
}

for (const status of [404, 405, 501])
  test(`a server without the Responses API (${status}) gets chat completions, from the second call on at once`, async (t) => {
    const { ask, paths, gateway } = await start(t, () => [status, NOT_FOUND]);
    for (let i = 0; i < 2; i++) {
      const { status: received, text } = await ask();
      assert.equal(received, 200, text);
      assert.match(text, /"object":"response".*hello/s);
    }
    assert.deepEqual(paths, ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]);
    assert.match(await gateway.logged("Responses API"), /translated to chat completions/);
  });

test("a server that responds with 404 to everything for a while keeps its Responses API", async (t) => {
  let isStarting = true;
  const missing = (): Rejection | undefined => (isStarting ? [404, NOT_FOUND] : undefined);
  const { ask, paths } = await start(t, missing, "openAICompatible", missing);
  assert.equal((await ask()).status, 404);
  isStarting = false;
  assert.match((await ask()).text, /"id":"resp_1"/);
  assert.deepEqual(paths, ["/v1/responses", "/v1/chat/completions", "/v1/responses"]);
});

test("a server that rejects namespaces gets these calls as chat completions, and others unchanged", async (t) => {
  const { ask, paths } = await start(t, (body) => (body.includes("namespace") ? [400, NO_NAMESPACE] : undefined));
  for (let i = 0; i < 2; i++) assert.equal((await ask({ tools: [NAMESPACE] })).status, 200);
  assert.equal((await ask({ tools: [PLAIN_TOOL] })).status, 200);
  assert.deepEqual(paths, ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions", "/v1/responses"]);
});

const passed: readonly (readonly [name: string, rejection: Rejection, provider?: string])[] = [
  ["an unknown model", [404, UNKNOWN_MODEL]],
  ["an unknown response", [404, UNKNOWN_RESPONSE]],
  ["another fault of the request", [400, OTHER]],
  ["a 404 of OpenAI itself", [404, NOT_FOUND], "openAI"],
];
for (const [name, rejection, provider] of passed)
  test(`${name} reaches the client, and the next call uses the Responses API`, async (t) => {
    const { ask, paths } = await start(t, () => rejection, provider);
    for (let i = 0; i < 2; i++) assert.equal((await ask({ tools: [NAMESPACE] })).status, rejection[0]);
    assert.deepEqual(paths, ["/v1/responses", "/v1/responses"]);
  });

const DEVELOPER = { role: "developer", content: 'Say "parallel_tool_calls" twice' };
const USER = { role: "user", content: "Hi" };
const TOOL = { type: "function", function: { name: "read", parameters: { type: "object", properties: {} } } };

/** A server that rejects chat completions as `reject` says, and a gateway before it. */
async function startChat(t: TestContext, reject: (body: Record<string, unknown>) => Rejection | undefined) {
  const bodies: Record<string, unknown>[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const body = JSON.parse(text);
      bodies.push(body);
      const [status, answer] = reject(body) ?? [200, CHAT];
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(answer));
    });
  });
  const models = `{ name: m, provider: { openAICompatible: { baseUrl: "http://${host}/v1" } }, params: { model: served } }`;
  const gateway = await gatewayFor(t, `llm: { port: 0, models: [${models}] }\n`);
  const ask = async (members: object, path = "/v1/chat/completions"): Promise<number> => {
    const response = await fetch(`${gateway.url()}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", "anthropic-version": "2023-06-01" },
      body: JSON.stringify({ model: "m", max_tokens: 9, ...members }),
    });
    await response.arrayBuffer();
    return response.status;
  };
  return { ask, bodies, gateway };
}

const rolesOf = (body: Record<string, unknown>): unknown[] =>
  (body.messages as { role: unknown }[]).map(({ role }) => role);
const hasDeveloper = (body: Record<string, unknown>): boolean => rolesOf(body).includes("developer");

for (const [name, message] of [
  ["names the role", "messages[0].role: unknown variant `developer`, expected one of `system`, `user`"],
  ["only says that a role is unexpected", "Unexpected message role."],
])
  test(`a server that ${name} gets the developer's message as a system message`, async (t) => {
    const rejection: Rejection = [400, { error: { message } }];
    const { ask, bodies, gateway } = await startChat(t, (body) => (hasDeveloper(body) ? rejection : undefined));
    for (let i = 0; i < 2; i++) assert.equal(await ask({ messages: [DEVELOPER, USER] }), 200);
    assert.deepEqual(bodies.map(rolesOf), [
      ["developer", "user"],
      ["system", "user"],
      ["system", "user"],
    ]);
    assert.deepEqual(bodies[2], { model: "served", max_tokens: 9, messages: [{ ...DEVELOPER, role: "system" }, USER] });
    assert.match(await gateway.logged("role developer"), /sent with the role system/);
  });

test("a server that rejects parallel_tool_calls gets calls without it, streams and translated calls too", async (t) => {
  const rejection: Rejection = [422, { error: { message: "Unrecognized request argument: parallel_tool_calls" } }];
  const { ask, bodies } = await startChat(t, (body) => ("parallel_tool_calls" in body ? rejection : undefined));
  const members = { messages: [USER], tools: [TOOL], parallel_tool_calls: false };
  assert.equal(await ask(members), 200);
  assert.equal(await ask({ ...members, stream: true, stream_options: { include_usage: false, extra: 1 } }), 200);
  const anthropic = { tools: [{ name: "read", input_schema: { type: "object" } }], tool_choice: { type: "auto" } };
  assert.equal(await ask({ messages: [USER], ...anthropic }, "/v1/messages"), 200);
  assert.deepEqual(
    bodies.map((body) => "parallel_tool_calls" in body),
    [true, false, false, false],
  );
  assert.deepEqual(bodies[2]?.stream_options, { include_usage: true, extra: 1 });
  assert.deepEqual(bodies[2]?.tools, [TOOL]);
});

test("both are omitted if the server rejects one after the other", async (t) => {
  const { ask, bodies } = await startChat(t, (body) => {
    if (hasDeveloper(body)) return [400, { error: { message: "developer is not supported" } }];
    return "parallel_tool_calls" in body ? [400, { error: { message: "parallel_tool_calls" } }] : undefined;
  });
  assert.equal(await ask({ messages: [DEVELOPER], parallel_tool_calls: true }), 200);
  assert.equal(bodies.length, 3);
});

test("a server that rejects the call without the feature too is called once more, and the client gets its error", async (t) => {
  const { ask, bodies } = await startChat(t, () => [400, { error: { message: "the role and parallel_tool_calls" } }]);
  const members = { messages: [DEVELOPER], parallel_tool_calls: true };
  assert.equal(await ask(members), 400);
  assert.equal(bodies.length, 3, "each feature is omitted once");
  assert.equal(await ask({ messages: [USER] }), 400);
  assert.equal(bodies.length, 4, "a call without the features is not repeated");
});

test("the admin interface shows what a server rejected", async (t) => {
  const { ask, gateway } = await startChat(t, (body) =>
    "parallel_tool_calls" in body ? [400, { error: { message: "parallel_tool_calls" } }] : undefined,
  );
  assert.equal(await ask({ messages: [USER], parallel_tool_calls: true }), 200);
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).json();
  const [backend] = dump.backends.filter(({ type }: { type: string }) => type === "ai");
  assert.deepEqual(backend.targets[0].lacks, ["parallel_tool_calls"]);
});
