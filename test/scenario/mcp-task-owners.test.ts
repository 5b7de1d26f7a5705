/** A task belongs to the client that created it, whatever the server behind the gateway would show to others. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createSigningKey, keySetOf, signToken } from "../support/identity/tokens.ts";
import { type Json, rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { startTaskServer, type TaskServer } from "../support/mcp/task-server.ts";
import { gatewayFor } from "../support/scenario.ts";

const key = createSigningKey("ES256", "k");
const ISSUER = "https://issuer.example";
const JWT = { jwtAuth: { issuer: ISSUER, audiences: ["mcp"], jwks: JSON.stringify(keySetOf(key)) } };
const ONE_TASK = ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"];

function bearer(sub: string, jti = "1"): Record<string, string> {
  const claims = { iss: ISSUER, aud: "mcp", exp: Math.floor(Date.now() / 1000) + 86_400, sub, jti };
  return { authorization: `Bearer ${signToken({ key, claims })}` };
}

type Send = (method: string, params?: Record<string, unknown>) => Promise<Json>;

async function legacyClient(url: string, headers: Record<string, string>): Promise<Send> {
  const client = rawClient(url);
  const params = { protocolVersion: client.version, capabilities: {}, clientInfo: { name: "t", version: "1" } };
  const opened = await client.post({ jsonrpc: "2.0", id: 1, method: "initialize", params }, headers);
  client.sessionId = opened.headers.get("mcp-session-id") ?? undefined;
  let id = 1;
  return async (method, params = {}) =>
    (await client.post({ jsonrpc: "2.0", id: ++id, method, params }, headers)).message;
}

const modernClient =
  (url: string, headers: Record<string, string>): Send =>
  async (method, params) =>
    (await modernPost(url, method, params, { headers })).message;

const makers = {
  legacy: legacyClient,
  modern: async (url: string, headers: Record<string, string>): Promise<Send> => modernClient(url, headers),
};

async function setUp(
  t: TestContext,
  era: "legacy" | "modern",
  policies: object,
): Promise<{ server: TaskServer; url: string; text: string }> {
  const server = await startTaskServer(era);
  t.after(() => server.close());
  const text = mcpConfig([{ name: "one", mcp: { url: server.url } }], {}, { policies });
  const gateway = await gatewayFor(t, text);
  return { server, url: `${gateway.url()}/mcp`, text };
}

function taskIdOf({ result }: Json): string {
  return result.taskId ?? result.task.taskId;
}

for (const serverEra of ["legacy", "modern"] as const)
  for (const clientEra of ["legacy", "modern"] as const) {
    const title = `a ${clientEra} client at a ${serverEra} server`;
    test(`${title} cannot use a task of another principal, which looks like one that does not exist [A32]`, async (t) => {
      const { server, url } = await setUp(t, serverEra, JWT);
      const alice = await makers[clientEra](url, bearer("alice"));
      const again = await makers[clientEra](url, bearer("alice", "2"));
      const carol = await makers[clientEra](url, bearer("carol"));
      const id = taskIdOf(await alice("tools/call", { name: "read", arguments: { who: "alice" } }));
      const own = taskIdOf(await carol("tools/call", { name: "read", arguments: { who: "carol" } }));
      for (const method of ONE_TASK) {
        for (const owner of [alice, again])
          assert.equal((await owner(method, { taskId: id })).result.result.content[0].text, "alice", method);
        const before = server.received.length;
        const foreign = await carol(method, { taskId: id });
        const unknown = await carol(method, { taskId: "task-99" });
        assert.equal(foreign.error.code, -32602);
        assert.equal(foreign.error.message, `Unknown task: ${id}`);
        assert.deepEqual(foreign.error, { ...unknown.error, message: foreign.error.message });
        for (const taskId of [undefined, null, 7, [id], { id }, "", ` ${id}`, `${id}\0`])
          assert.ok((await carol(method, { taskId })).error, JSON.stringify(taskId));
        for (const spelling of ["TaskId", "taskid", "TASKID", "ta\u017fkId", "tas\u212aId"])
          assert.ok((await carol(method, { taskId: own, [spelling]: id })).error, spelling);
        assert.equal(server.received.length, before, "the server was asked");
      }
      for (const method of ["tasks/read", "tasks/"])
        assert.equal((await alice(method, { taskId: id })).error.code, -32601);
      server.extra = [{ taskId: own, TaskId: id }, { TaskId: id }, { taskId: [own] }, "x", null];
      const ids = async (client: Send): Promise<string[]> => {
        const { result } = await client("tasks/list");
        assert.equal(result.Tasks, undefined);
        return result.tasks.map(({ taskId }: Json) => taskId);
      };
      assert.deepEqual([await ids(alice), await ids(carol)], [[id], [own]]);
      await carol("subscriptions/listen", { notifications: { taskIds: [id, own], toolsListChanged: true } });
      for (const { params } of server.received.filter(({ method }) => method === "subscriptions/listen"))
        assert.ok(!JSON.stringify(params).includes(`"${id}"`));
    });

    test(`${title} keeps its tasks without authentication [A32]`, async (t) => {
      const { url } = await setUp(t, serverEra, {});
      const client = await makers[clientEra](url, {});
      const stranger = await makers[clientEra](url, { authorization: "Bearer other" });
      const id = taskIdOf(await client("tools/call", { name: "read", arguments: { who: "me" } }));
      assert.equal((await client("tasks/get", { taskId: id })).result.result.content[0].text, "me");
      assert.equal((await stranger("tasks/get", { taskId: id })).error.message, `Unknown task: ${id}`);
      assert.deepEqual((await stranger("tasks/list")).result.tasks, []);
    });

    test(`${title}: a task is judged as the call that created it [A32]`, async (t) => {
      const { url } = await setUp(t, serverEra, {
        ...JWT,
        mcpAuthorization: {
          rules: [
            'mcp.tool.name == "read" && (mcp.tool.arguments.who != "b" || request.headers["x-role"] == "boss")',
            'mcp.tool.name == "write" && request.headers["x-role"] == "boss"',
          ],
        },
      });
      const plain = await makers[clientEra](url, bearer("alice"));
      const boss = await makers[clientEra](url, { ...bearer("alice"), "x-role": "boss" });
      const calls = [
        { name: "read", arguments: { who: "a" } },
        { name: "read", arguments: { who: "b" } },
        { name: "write", arguments: {} },
      ];
      const ids: string[] = [];
      for (const call of calls) ids.push(taskIdOf(await boss("tools/call", call)));
      const readable = async (client: Send): Promise<(string | undefined)[]> => {
        const read: (string | undefined)[] = [];
        for (const taskId of ids) read.push((await client("tasks/get", { taskId })).error?.message);
        return read;
      };
      assert.deepEqual(await readable(boss), [undefined, undefined, undefined]);
      assert.deepEqual(await readable(plain), [undefined, `Unknown task: ${ids[1]}`, `Unknown task: ${ids[2]}`]);
      assert.deepEqual(
        (await plain("tasks/list")).result.tasks.map(({ taskId }: Json) => taskId),
        [ids[0]],
      );
    });
  }
