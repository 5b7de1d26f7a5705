/**
 * Upgrades under load (LLM calls and streams, MCP sessions, logins, the admin interface) with a budget in the store and
 * a history: no request fails, and each is charged and recorded once, also if the new process fails after it has taken
 * the store. UPGRADES=50 makes so many upgrades with each store and 1 and 2 threads.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { usageOf } from "../support/history/history-database.ts";
import { answerWith, PRICES, provider, USAGE, type Views } from "../support/llm/budgets.ts";
import { type RawClient, rawClient } from "../support/mcp/client.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { startRemote } from "../support/mcp/http-server.ts";
import { type OauthFixture, startOauthFixture } from "../support/mcp/oauth-fixture.ts";
import { Random } from "../support/random.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";
import { BUNDLE, threadingNode } from "../support/threaded-gateway.ts";

const newer = threadingNode();
const UPGRADES = Number(process.env.UPGRADES ?? 3);
const CLIENTS = 6;
/** So many later calls until a stream goes on. */
const STREAM_CALLS = 60;
/** The first one is logged in from the start, the others log in meanwhile. */
const USERS = ["first", ...Array.from({ length: 300 }, (_, i) => `user${i}`)];

const VARIANTS = [
  { store: "memory", threads: 1 },
  { store: "folder", threads: 2 },
  { store: "memory", threads: 2 },
  { store: "folder", threads: 1 },
  { store: "redis", threads: 1 },
  { store: "redis", threads: 2 },
] as const;

for (const { store, threads } of process.env.UPGRADES === undefined ? VARIANTS.slice(0, 2) : VARIANTS) {
  const skip =
    process.platform !== "linux" || (threads > 1 && newer === undefined)
      ? "needs Linux, and for threads Node 22.12 or the package node-linux-<arch>"
      : store === "redis" && skipWithoutRedis;
  test(`${UPGRADES} upgrades with a ${store} store and ${threads} threads: no request fails or is charged twice`, {
    skip,
  }, async (t) => {
    const remote = await startRemote("http");
    t.after(() => remote.close());
    const accounts = await startOauthFixture();
    t.after(() => accounts.close());
    const redis = store === "redis" ? await startRedis() : undefined;
    if (redis) t.after(() => redis.close());
    const folder = mkdtempSync(join(tmpdir(), "upgrade-store-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, "config.yaml");
    const llm = await startSlowStreams(t);
    const stores = { memory: "memory", folder: { folder: "state" }, redis: { redis: redis?.url, timeout: "20s" } };
    const config = {
      config: {
        workers: threads,
        adminAddr: "127.0.0.1:0",
        store: stores[store],
        history: {},
        // Streams span upgrades, however slow the machine is.
        drainTimeout: "10m",
        logging: { level: "info,access=off" },
      },
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        {
          name: "llm",
          matches: [{ path: { pathPrefix: "/v1" } }],
          policies: { budgets: { limits: [{ name: "all", tokens: 1_000_000_000, per: "month" }] } },
          backends: [
            {
              ai: {
                name: "test",
                modelCatalog: "prices.json",
                provider: { openAICompatible: { name: "test", baseUrl: `http://${llm.host}/v1` } },
              },
            },
          ],
        },
        { name: "tools", backends: [{ mcp: { targets: [{ name: "remote", mcp: { url: remote.url } }] } }] },
        {
          name: "children",
          matches: [{ path: { exact: "/children" } }],
          backends: [{ mcp: { targets: [{ name: "child", stdio: stdioFixture("odd-server") }] } }],
        },
        {
          name: "accounts",
          matches: [{ path: { exact: "/accounts" } }],
          policies: { apiKey: { keys: USERS.map((user) => ({ key: `key-${user}`, metadata: { user } })) } },
          backends: [
            {
              mcp: {
                vaultKey: "a key of at least thirty-two characters",
                targets: [
                  { name: "cal", mcp: { url: accounts.mcpUrl, oauth: { connectUrl: "http://gateway.test/connect" } } },
                ],
              },
            },
          ],
        },
        { name: "connect", matches: [{ path: { pathPrefix: "/connect" } }], backends: [{ mcpLogins: {} }] },
      ],
    };
    const write = (gateways: object): void => writeFileSync(file, JSON.stringify({ ...config, gateways }));
    writeFileSync(join(folder, "prices.json"), PRICES);
    write(config.gateways);
    const command = threads === 1 ? {} : { command: [newer ?? "", BUNDLE] };
    const gateway = startGatewayProcess(t, ["-f", file], command);
    const url = `http://127.0.0.1:${await gateway.port()}`;
    const adminUrl = await gateway.adminUrl();
    const session = rawClient(`${url}/mcp`);
    await session.initialize();
    const child = rawClient(`${url}/children`);
    await child.initialize();
    const account = accountClient(url, "first");
    await account.initialize();
    await connectAccount(url, accounts, account, "first");
    const blocked = await blockedPort(t);

    let isOver = false;
    let requests = 0;
    let toolCalls = 0;
    const problems: string[] = [];
    /** Sends again and again; the function returns a problem, or an empty string. */
    const load = async (send: () => Promise<string>): Promise<void> => {
      while (!isOver) {
        const problem = await send().catch((error: Error) => `${error.message} ${String(error.cause)}`);
        requests += 1;
        if (problem !== "") problems.push(`${new Date().toISOString()} ${send.name}: ${problem}`);
      }
    };
    const chat = (stream: boolean) => async (): Promise<string> => {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ model: "gpt-test", stream, messages: [{ role: "user", content: "Say hi." }] }),
      });
      const text = await response.text();
      const isWhole = response.status === 200 && (!stream || text.endsWith("data: [DONE]\n\n"));
      return isWhole ? "" : `${response.status} ${text}`;
    };
    const callTool = async (client: RawClient): Promise<string> => {
      const message = `call ${++toolCalls}`;
      const response = await client.call("echo", { message });
      return response.result?.content?.[0]?.text === message ? "" : JSON.stringify(response);
    };
    const list = async (): Promise<string> => {
      const response = await session.request("tools/list");
      return response.result === undefined ? JSON.stringify(response) : "";
    };
    const newSession = async (): Promise<string> => {
      const client = rawClient(`${url}/mcp`);
      const { status, text } = await client.initialize();
      if (status !== 200) return `initialize: ${status} ${text}`;
      const problem = await callTool(client);
      const ended = await client.delete();
      return ended === 204 ? problem : `${problem} DELETE: ${ended}`;
    };
    const callChild = async (): Promise<string> => {
      const response = await child.call("echo", { message: "hi" });
      return response.result === undefined ? JSON.stringify(response) : "";
    };
    const whoami = async (): Promise<string> => {
      const response = await account.call("whoami");
      return response.result?.content?.[0]?.text === "first" ? "" : JSON.stringify(response);
    };
    let users = 0;
    const logIn = async (): Promise<string> => {
      const user = USERS[++users];
      if (user === undefined) return whoami();
      const client = accountClient(url, user);
      await client.initialize();
      await connectAccount(url, accounts, client, user);
      const response = await client.call("whoami");
      return response.result?.content?.[0]?.text === user ? "" : JSON.stringify(response);
    };
    const scrape = async (): Promise<string> => {
      const response = await fetch(`${adminUrl}/metrics`);
      await response.text();
      return response.status === 200 ? "" : `/metrics: ${response.status}`;
    };
    const sends = [list, scrape, newSession, callChild, whoami, whoami, logIn, () => callTool(session)];
    const chats = Array.from({ length: CLIENTS }, (_, i) => chat(i % 3 === 0));
    const loads = [...sends, ...chats].map(load);

    const random = new Random(20261119 + VARIANTS.findIndex((one) => one.store === store && one.threads === threads));
    let last = "";
    for (let i = 1; i <= UPGRADES; i++) {
      const until = requests + random.int(400);
      await eventually("some requests later", () => requests >= until);
      // The tokens are renewed while the store changes hands, and each refresh token can be used once.
      if (i % 2 === 0) accounts.tokens.clear();
      const fails = i % 3 === 0;
      // The second listener cannot be opened: by then the new process has the store.
      write({ ...config.gateways, ...(fails ? { second: { port: blocked, address: "127.0.0.1" } } : {}) });
      let response = new Response();
      let text = last;
      // For a moment the old process still has the admin address, and repeats its response. It drains while later
      // upgrades run: its last requests use the store through all later processes.
      await eventually("another upgrade", async () => {
        response = await fetch(`${adminUrl}/upgrade`, { method: "POST" });
        text = await response.text();
        return text !== last;
      });
      assert.equal(response.status, fails ? 500 : 200, text);
      last = text;
      const pid = /process (\d+); process/.exec(text)?.[1];
      if (pid !== undefined) t.after(() => kill(Number(pid)));
    }
    isOver = true;
    llm.finish();
    await Promise.all(loads);
    const warnings = gateway
      .stdout()
      .split("\n")
      .filter((line) => /Z (warn|error) /.test(line));
    const found = `${problems.length} of ${requests} requests:\n${problems.slice(0, 5).join("\n")}`;
    assert.equal(problems.length, 0, `${found}\n${warnings.join("\n")}`);
    const expected = llm.served() * USAGE.total_tokens;
    let spent: number | undefined;
    await eventually(`${llm.served()} calls are charged once`, async () => {
      const { budgets } = (await (await fetch(`${adminUrl}/debug/budgets`)).json()) as Views;
      spent = budgets[0]?.keys[0]?.spent;
      return spent === expected;
    }).catch(() => assert.equal(spent, expected));
    const sent = remote.received.filter(({ body }) => body.includes('"tools/call"'));
    assert.equal(new Set(sent.map(({ body }) => JSON.parse(body).params.arguments.message)).size, toolCalls);
    assert.equal(sent.length, toolCalls, "no tool is called twice");
    // The last process may wait for the database of an earlier one.
    const recorded = (query: string): Promise<number> =>
      usageOf(adminUrl, query).then(
        ({ total }) => total.requests,
        () => 0,
      );
    let rows: readonly number[] = [];
    const expectedRows = [llm.served(), toolCalls];
    const recordedOnce = async (): Promise<boolean> => {
      rows = [await recorded("route=llm"), await recorded("route=tools&tool=echo")];
      return rows.every((count, i) => count === expectedRows[i]);
    };
    // A process looks once a minute for the rows that earlier ones left.
    await eventually("each request is in the history once", recordedOnce)
      .catch(() => eventually("rows of earlier processes are in the history", recordedOnce))
      .catch(() => assert.deepEqual(rows, expectedRows));
    if (UPGRADES > 10)
      t.diagnostic(`${requests} requests, ${llm.served()} of the provider, ${toolCalls} of tools, ${users} logins`);
  });
}

interface SlowStreams {
  readonly host: string;
  served(): number;
  /** From now on, streams end at once. */
  finish(): void;
}

/** A provider whose streams pause in the middle until it has received more calls, so that they span upgrades. */
async function startSlowStreams(t: TestContext): Promise<SlowStreams> {
  let served = 0;
  let isFinishing = false;
  const paused: { readonly until: number; end(): void }[] = [];
  const answer = answerWith(USAGE);
  const host = await provider(t, (request, response, body) => {
    served += 1;
    while (paused[0] !== undefined && (isFinishing || paused[0].until <= served)) paused.shift()?.end();
    if (body.stream !== true || isFinishing) {
      answer(request, response, body);
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (more: object): void => {
      const chunk = { id: "1", object: "chat.completion.chunk", model: body.model, ...more };
      response.write(`data: ${JSON.stringify(chunk)}\n\n`);
    };
    send({ choices: [{ index: 0, delta: { role: "assistant", content: "hi" } }] });
    const end = (): void => {
      send({ choices: [], usage: USAGE });
      response.end("data: [DONE]\n\n");
    };
    paused.push({ until: served + STREAM_CALLS, end });
  });
  return {
    host,
    served: () => served,
    finish() {
      isFinishing = true;
      for (const { end } of paused.splice(0)) end();
    },
  };
}

function accountClient(url: string, user: string): RawClient {
  const client = rawClient(`${url}/accounts`);
  const { post } = client;
  client.post = (body, headers = {}) => post(body, { authorization: `Bearer key-${user}`, ...headers });
  return client;
}

/** Logs the user in as a browser does: opens the page, presses its button, logs in at the server, and comes back. */
async function connectAccount(url: string, server: OauthFixture, client: RawClient, user: string): Promise<void> {
  const at = (address: string): string => address.replace("http://gateway.test", url);
  const { error } = await client.call("whoami");
  const address: string | undefined = error?.data?.elicitations?.[0]?.url;
  assert.ok(address, `no login of ${user}: ${JSON.stringify(error)}`);
  const page = await fetch(at(address));
  assert.equal(page.status, 200, await page.text());
  const headers = { origin: new URL(address).origin };
  const sent = await fetch(at(address), { method: "POST", redirect: "manual", headers });
  assert.equal(sent.status, 303, await sent.text());
  const cookie = (sent.headers.get("set-cookie") ?? "").split(";", 1)[0] ?? "";
  const back = await fetch(at(server.logIn(sent.headers.get("location") ?? "", user)), { headers: { cookie } });
  assert.equal(back.status, 200, await back.text());
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}

async function blockedPort(t: TestContext): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return (server.address() as { port: number }).port;
}
