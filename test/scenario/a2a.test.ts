/** The `a2a` backend: an agent's card with the gateway's address, calls and streams passed on, attributes for rules. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { gatewayFor } from "../support/scenario.ts";

const SKILLS = [
  { id: "book", name: "Book" },
  { id: "cancel", name: "Cancel" },
];

async function startAgent(t: TestContext) {
  const state = {
    url: "",
    calls: [] as { host: string | undefined; path: string; body: string }[],
    cards: 0,
    stop: (): void => undefined,
  };
  const server = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      const json = (value: object): void => {
        res.writeHead(200, { "content-type": "application/json" });
        res.end(JSON.stringify(value));
      };
      if (req.url === "/.well-known/agent-card.json") {
        state.cards += 1;
        const url = `${state.url}/a2a/v1`;
        const ways = ["JSONRPC", "GRPC"].map((transport) => ({ url, transport }));
        const signatures = [{ signature: "x" }];
        json({
          name: "Travel",
          url,
          preferredTransport: "GRPC",
          additionalInterfaces: ways,
          signatures,
          skills: SKILLS,
        });
        return;
      }
      if (req.url !== "/a2a/v1?key=1") {
        res.writeHead(404).end();
        return;
      }
      state.calls.push({ host: req.headers.host, path: req.url, body });
      const { id, method } = JSON.parse(body);
      if (method !== "message/stream") {
        json({ jsonrpc: "2.0", id, result: { kind: "message", parts: [{ kind: "text", text: "ok" }] } });
        return;
      }
      res.writeHead(200, { "content-type": "text/event-stream" });
      for (const status of ["working", "completed"])
        res.write(
          `data: ${JSON.stringify({ jsonrpc: "2.0", id, result: { kind: "status-update", state: status } })}\n\n`,
        );
      res.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = (): void => {
    server.close();
    server.closeAllConnections();
  };
  t.after(stop);
  state.stop = stop;
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return state;
}

async function setUp(t: TestContext, policies: object = {}, path = "/agents/travel") {
  const agent = await startAgent(t);
  const config = JSON.stringify({
    config: { logging: { level: "info,access=off" } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        name: "travel",
        matches: [{ path: { pathPrefix: path } }],
        policies,
        backends: [{ a2a: { url: `${agent.url}/a2a/v1?key=1` } }],
      },
    ],
  });
  const gateway = await gatewayFor(t, config);
  const url = `${gateway.url()}${path}`;
  const post = (body: unknown, at = url) =>
    fetch(at, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  return { agent, gateway, url, post };
}

const call = (method: string, params: object = {}, id: unknown = 1) => ({ jsonrpc: "2.0", id, method, params });
const message = (metadata: object = {}) => ({ message: { messageId: "m", contextId: "c1", parts: [], metadata } });

test("the card names the gateway, and nothing that leads past it", async (t) => {
  const { url, agent, gateway } = await setUp(t);
  for (const name of ["agent-card.json", "agent.json"]) {
    const card = await (await fetch(`${url}/.well-known/${name}`)).json();
    assert.deepEqual(card, {
      name: "Travel",
      url,
      preferredTransport: "JSONRPC",
      additionalInterfaces: [{ url, transport: "JSONRPC" }],
      skills: SKILLS,
    });
  }
  assert.equal(agent.cards, 1, "it is kept");
  assert.equal((await fetch(`${gateway.url()}/.well-known/agent-card.json`)).status, 404);
});

test("an agent at the root of a gateway", async (t) => {
  const { gateway, post } = await setUp(t, {}, "/");
  const card = (await (await fetch(`${gateway.url()}/.well-known/agent-card.json`)).json()) as { url: string };
  assert.equal(card.url, `${gateway.url()}/`);
  assert.equal((await post(call("message/send", message()), card.url)).status, 200);
});

test("a request for the extended card does not reach the agent, with or without an id, in any case", async (t) => {
  const { agent, post } = await setUp(t);
  for (const method of [
    "agent/getAuthenticatedExtendedCard",
    "GetExtendedAgentCard",
    "AGENT/getauthenticatedextendedcard",
  ])
    for (const id of [1, undefined]) {
      const answer = await post(JSON.stringify({ jsonrpc: "2.0", id, method, params: {} }));
      assert.match(await answer.text(), /Method not found/, `${method} ${id}`);
    }
  assert.deepEqual(agent.calls, []);
});

test("a message in another charset or coding than the gateway reads does not reach the agent", async (t) => {
  const { agent, url } = await setUp(t);
  const body = JSON.stringify(call("message/send", message()));
  const status = async (headers: Record<string, string>) =>
    (await fetch(url, { method: "POST", headers, body })).status;
  for (const charset of ["utf-16", "utf-7", "ibm037", '"UTF-16LE"'])
    assert.equal(await status({ "content-type": `application/json; charset=${charset}` }), 415, charset);
  for (const coding of ["gzip", "br", "identity, gzip"])
    assert.equal(await status({ "content-type": "application/json", "content-encoding": coding }), 415, coding);
  assert.deepEqual(agent.calls, []);
  assert.equal(await status({ "content-type": "application/json; charset=utf-8" }), 200);
});

test("calls and streams are passed on as they are", async (t) => {
  const { agent, post } = await setUp(t);
  const text = '{"jsonrpc":"2.0","id":"a","method":"message/send","params":{"message":{"n":12345678901234567890}}}';
  const answer = (await (await post(text)).json()) as { id: string };
  assert.equal(answer.id, "a");
  assert.deepEqual(agent.calls, [{ host: new URL(agent.url).host, path: "/a2a/v1?key=1", body: text }]);
  const stream = await post(call("message/stream", message()));
  assert.equal(stream.headers.get("content-type"), "text/event-stream");
  assert.deepEqual(
    [...(await stream.text()).matchAll(/"state":"(\w+)"/g)].map(([, state]) => state),
    ["working", "completed"],
  );
});

test("rules and limits read the call; what they cannot read is denied", async (t) => {
  const { agent, post } = await setUp(t, {
    authorization: { rules: ['a2a.agent == "Travel" && a2a.skill in a2a.skills && a2a.skill != "cancel"'] },
    rateLimit: { local: [{ key: "a2a.skill", requests: 2, unit: "Hours" }] },
  });
  assert.equal((await post(call("message/send", message({ skillId: "book" })))).status, 200);
  for (const params of [message({ skillId: "cancel" }), message({ skillId: "other" }), message(), {}])
    assert.equal((await post(call("message/send", params))).status, 403);
  // Two readings of one text.
  const twice = JSON.stringify(call("message/send", message({ skillId: "book" }))).replace(
    '"skillId"',
    '"skillId":"cancel","skillId"',
  );
  assert.equal((await post(twice)).status, 400);
  assert.equal((await post(call("message/send", message({ skillId: "book" })))).status, 200);
  assert.equal((await post(call("message/send", message({ skillId: "book" })))).status, 429);
  assert.equal(agent.calls.length, 2);
});

test("rules judge the card, too, under a method of its own", async (t) => {
  const card = async (rule: string) => {
    const { url } = await setUp(t, { authorization: { rules: [rule] } });
    return (await fetch(`${url}/.well-known/agent-card.json`)).status;
  };
  assert.equal(await card('a2a.method == "message/send"'), 403);
  assert.equal(await card('a2a.method == "agent/card" && a2a.agent == "Travel"'), 200);
});

test("what is no call of an agent is refused", async (t) => {
  const { agent, post, url } = await setUp(t);
  for (const body of ["", "{", "[]", JSON.stringify([call("x")]), "1", '{"jsonrpc":"1.0","id":1,"method":"x"}'])
    assert.equal((await post(body)).status, 400, body);
  const large = JSON.stringify(call("x", { a: "x".repeat(4 * 1024 * 1024) }));
  assert.equal((await post(large)).status, 413);
  assert.equal((await post(call("message/send"), `${url}/v1/message:send`)).status, 404);
  assert.equal((await fetch(url)).status, 405);
  const card = (await (await post(call("agent/getAuthenticatedExtendedCard"))).json()) as { error: { code: number } };
  assert.equal(card.error.code, -32601);
  assert.equal(agent.calls.length, 0);
});

test("a rule about a method holds for every name of it, and the extended card is never passed on [A27]", async (t) => {
  const { agent, post } = await setUp(t, {
    authorization: { rules: [{ deny: 'a2a.method in ["tasks/cancel", "tasks/pushNotificationConfig/set"]' }] },
  });
  const denied = ["tasks/cancel", "CancelTask", "tasks/pushNotificationConfig/set", "SetTaskPushNotificationConfig"];
  for (const method of [...denied, "CreateTaskPushNotificationConfig", "tasks/pushNotification/set"])
    for (const id of [1, undefined]) assert.equal((await post(call(method, { id: "t" }, id))).status, 403, method);
  for (const method of ["canceltask", "TASKS/CANCEL", "Tasks/Cancel", "getextendedagentcard"]) {
    const { error } = (await (await post(call(method))).json()) as { error: { code: number } };
    assert.equal(error.code, -32601, method);
  }
  for (const method of ["agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"])
    for (const id of [1, undefined]) {
      const { error } = (await (await post(call(method, {}, id))).json()) as { error: { code: number } };
      assert.equal(error.code, -32601, method);
    }
  assert.equal(agent.calls.length, 0);
  assert.equal((await post(call("SendMessage", message()))).status, 200);
});

test("a rule by a name that `a2a.method` never has is rejected at load [A27]", async (t) => {
  for (const rule of ['a2a.method != "CancelTask"', 'a2a.method in ["message/send", "GetTask"]'])
    await assert.rejects(setUp(t, { authorization: { rules: [rule] } }), /for all versions of A2A/);
});

test("a body that an agent could decode otherwise is rejected [M15]", async (t) => {
  const { agent, url } = await setUp(t);
  const text = JSON.stringify(call("message/send", message()));
  const post = (body: Buffer, headers: Record<string, string>): Promise<Response> =>
    fetch(url, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: body as never });
  for (const charset of ["utf-16", "utf-7", "ibm037"]) {
    const type = { "content-type": `application/json; charset=${charset}` };
    assert.equal((await post(Buffer.from(text), type)).status, 415, charset);
  }
  assert.equal((await post(Buffer.from(text), { "content-encoding": "gzip" })).status, 415);
  assert.equal((await post(Buffer.from(text, "utf16le"), {})).status, 400);
  assert.equal((await post(Buffer.from(text.replace('"m"', '"m\u00ff"')), {})).status, 200);
  assert.equal((await post(Buffer.from(text.replace('"m"', '"\xff"'), "latin1"), {})).status, 400);
  assert.equal((await post(Buffer.from(text), { "content-type": "application/json; charset=UTF-8" })).status, 200);
  assert.equal(agent.calls.length, 2);
});

test("a rule about a task holds for every task that an agent can read in a call [A35]", async (t) => {
  const { agent, post } = await setUp(t, { authorization: { rules: [{ deny: 'a2a.taskId == "theirs"' }] } });
  const task = fc.constantFrom<unknown>("mine", "theirs", ["theirs"], "", null);
  const name = fc.constantFrom("id", "ID", "taskId", "TaskID", "task_id", "task__ID", "other");
  const members = fc.dictionary(name, task, { maxKeys: 3 });
  const methods = ["message/send", "SendMessage", "tasks/get", "GetTask", "tasks/pushNotificationConfig/set"];
  const method = fc.constantFrom(
    ...methods,
    "tasks/pushNotificationConfig/get",
    "GetTaskPushNotificationConfig",
    "x/y",
  );
  const inner = fc.option(fc.tuple(fc.constantFrom("message", "Message", "MESSAGE_"), members), { nil: undefined });
  await fc.assert(
    fc.asyncProperty(method, members, inner, async (called, params, nested) => {
      const before = agent.calls.length;
      const response = await post(call(called, nested ? { ...params, [nested[0]]: nested[1] } : params));
      const [sent] = agent.calls.slice(before);
      assert.ok(sent === undefined ? response.status >= 400 : response.status === 200);
      if (sent === undefined) return;
      assert.doesNotMatch(JSON.stringify(tasksIn(JSON.parse(sent.body))), /theirs/, sent.body);
    }),
    { seed: 1, numRuns: 150 },
  );
  const mine = call("GetTaskPushNotificationConfig", { taskId: "mine", id: "theirs" });
  assert.equal((await post(mine)).status, 200, "here, the ID is that of a configuration");
  assert.equal((await post(call("GetTaskPushNotificationConfig", { taskId: "theirs", id: "mine" }))).status, 403);
  const { error } = (await (await post(call("tasks/get", { id: "mine", taskId: "theirs" }, "q"))).json()) as never;
  assert.deepEqual(error, { code: -32602, message: 'Invalid params: "taskId" has several values' });
});

/** Reads the tasks of a call as the most lenient agent could. */
function tasksIn({ method, params }: { method: string; params: Record<string, unknown> }): unknown[] {
  const isTask = (key: string): boolean => /^(?:task)?id$/.test(key.toLowerCase().replaceAll("_", ""));
  const isConfig = method === "GetTaskPushNotificationConfig";
  return Object.entries(params).flatMap(([key, value]): unknown[] => {
    if (key.toLowerCase().startsWith("message")) return tasksIn({ method: "", params: value as typeof params });
    return isTask(key) && !(isConfig && key === "id") ? [value] : [];
  });
}

test("an agent that cannot be reached is told as an error of JSON-RPC", async (t) => {
  const { agent, post } = await setUp(t);
  agent.stop();
  const response = await post(call("message/send", message(), "mine"));
  assert.equal(response.status, 502);
  assert.equal(response.headers.get("x-gateway-error"), "backend_unavailable");
  const { id, error } = (await response.json()) as { id: string; error: { code: number } };
  assert.deepEqual([id, error.code], ["mine", -32603]);
});

test("the trace tells of the call", async (t) => {
  const { post, gateway } = await setUp(t);
  const tracing = await fetch(`${gateway.adminUrl}/debug/trace`, { method: "POST" });
  await post(call("message/send", message({ skillId: "book" })));
  const text = await tracing.text();
  assert.match(text, /"kind":"a2a"/);
  assert.match(text, /"skill":"book"/);
});
