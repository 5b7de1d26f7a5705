/**
 * The history while its database is unavailable, and after the process was killed: requests are not affected, and every
 * row is stored exactly once.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { HISTORY_DATABASES, temporaryFolder, usageOf } from "../support/history/history-database.ts";
import { type PostgresServer, skipWithoutPostgres, startPostgres } from "../support/history/postgres-server.ts";
import { gatewayFor } from "../support/scenario.ts";
import { HELLO_ROUTE, sendMany, startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

interface Status {
  readonly state: string;
  readonly spoolBytes: number;
  readonly spooled: number;
  readonly dropped: number;
  readonly stored: { readonly rows: number } | null;
}

const yamlFor = (history: string): string => `
config: { adminAddr: "127.0.0.1:0", logging: { level: "info,access=off" }, history: ${history} }
gateways: { default: { port: 0 } }
routes: [{ name: hello, policies: { directResponse: { status: 200, body: hi } } }]
`;

async function send(url: string, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const response = await fetch(url);
    assert.equal(response.status, 200);
    await response.text();
  }
}

async function statusOf(adminUrl: string): Promise<Status> {
  return (await (await fetch(`${adminUrl}/debug/usage/status`)).json()) as Status;
}

async function storedExactly(adminUrl: string, requests: number): Promise<void> {
  await eventually(`${requests} requests are stored`, async () => {
    const { state, stored, spoolBytes } = await statusOf(adminUrl);
    return state === "up" && spoolBytes === 0 && (stored?.rows ?? 0) >= requests;
  });
  const { stored, dropped } = await statusOf(adminUrl);
  assert.deepEqual([stored?.rows, dropped], [requests, 0]);
  assert.equal((await usageOf(adminUrl, "")).total.requests, requests);
}

async function ownPostgres(t: TestContext): Promise<{ server: PostgresServer; settings: string }> {
  const server = await startPostgres();
  t.after(server.close);
  const settings = JSON.stringify({ folder: temporaryFolder(t), postgres: server.database("history") });
  return { server, settings };
}

test("requests pass while PostgreSQL is stopped, and their rows are written later, once", {
  skip: skipWithoutPostgres,
}, async (t) => {
  const { server, settings } = await ownPostgres(t);
  const gateway = await gatewayFor(t, yamlFor(settings));
  await send(gateway.url(), 10);
  await storedExactly(gateway.adminUrl, 10);
  await server.stop();
  await gateway.logged("history database unavailable");
  await send(gateway.url(), 30);
  await eventually("rows are spooled", async () => (await statusOf(gateway.adminUrl)).spooled >= 30);
  const refused = await fetch(`${gateway.adminUrl}/debug/usage`);
  assert.equal(refused.status, 503);
  assert.match(await refused.text(), /the history database is unavailable/);
  await server.start();
  await storedExactly(gateway.adminUrl, 40);
});

test("rows are spooled while PostgreSQL does not respond", { skip: skipWithoutPostgres }, async (t) => {
  const { server, settings } = await ownPostgres(t);
  const gateway = await gatewayFor(t, yamlFor(settings));
  await send(gateway.url(), 5);
  await storedExactly(gateway.adminUrl, 5);
  server.freeze();
  await send(gateway.url(), 5);
  const metrics = async (): Promise<string> => (await fetch(`${gateway.adminUrl}/metrics`)).text();
  await eventually("rows are spooled", async () => /gateway_history_spooled_total [1-9]/.test(await metrics()));
  server.thaw();
  await storedExactly(gateway.adminUrl, 10);
});

test("a gateway starts while PostgreSQL is stopped", { skip: skipWithoutPostgres }, async (t) => {
  const { server, settings } = await ownPostgres(t);
  await server.stop();
  const gateway = await gatewayFor(t, yamlFor(settings));
  await send(gateway.url(), 3);
  await server.start();
  await storedExactly(gateway.adminUrl, 3);
});

test("two replicas write to one PostgreSQL database at the same time", { skip: skipWithoutPostgres }, async (t) => {
  const { settings } = await ownPostgres(t);
  const other = JSON.stringify({ ...JSON.parse(settings), folder: temporaryFolder(t) });
  const replicas = await Promise.all([gatewayFor(t, yamlFor(settings)), gatewayFor(t, yamlFor(other))]);
  await Promise.all(replicas.flatMap(({ url }) => [send(url(), 40), send(url(), 40)]));
  await eventually("all rows are stored", async () => {
    const totals = await Promise.all(replicas.map(({ adminUrl }) => usageOf(adminUrl, "")));
    return totals.every(({ total }) => total.requests === 160);
  });
  await Promise.all(replicas.map(({ adminUrl }) => storedExactly(adminUrl, 160)));
});

for (const kind of HISTORY_DATABASES) {
  test(`${kind.name}: a killed process loses at most the last rows, and stores none twice`, {
    skip: kind.skip,
  }, async (t) => {
    const database = await kind.create(t);
    const file = configFile(t, yamlFor(database.settings()));
    const first = startGatewayProcess(t, ["-f", file]);
    const url = `http://127.0.0.1:${await first.port()}`;
    const adminUrl = await first.adminUrl();
    await send(url, 50);
    await storedExactly(adminUrl, 50);
    await send(url, 20);
    first.child.kill("SIGKILL");
    await first.exited;
    const second = startGatewayProcess(t, ["-f", file]);
    const again = await second.adminUrl();
    await second.logged("started version=");
    await eventually("the database is available", async () => (await statusOf(again)).state === "up");
    const { stored } = await statusOf(again);
    const { total } = await usageOf(again, "");
    assert.ok(total.requests >= 50 && total.requests <= 70, String(total.requests));
    assert.equal(stored?.rows, total.requests);
  });
}

test("rows that a killed process spooled are written by the next one", { skip: skipWithoutPostgres }, async (t) => {
  const { server, settings } = await ownPostgres(t);
  const file = configFile(t, yamlFor(settings));
  const first = startGatewayProcess(t, ["-f", file]);
  const url = `http://127.0.0.1:${await first.port()}`;
  const adminUrl = await first.adminUrl();
  await server.stop();
  await send(url, 25);
  await eventually("rows are spooled", async () => (await statusOf(adminUrl)).spooled >= 25);
  first.child.kill("SIGKILL");
  await first.exited;
  await server.start();
  const second = startGatewayProcess(t, ["-f", file]);
  await second.logged("started version=");
  await storedExactly(await second.adminUrl(), 25);
});

test("rows in memory are written when the gateway stops", async (t) => {
  const [kind] = HISTORY_DATABASES;
  const database = await kind?.create(t);
  const yaml = yamlFor(database?.settings() ?? "");
  const first = await gatewayFor(t, yaml);
  await send(first.url(), 7);
  await first.close();
  const second = await gatewayFor(t, yaml);
  await storedExactly(second.adminUrl, 7);
});

const node = threadingNode();
test("all worker threads record into one database", {
  skip: node === undefined && "needs Linux and Node.js 22.12 or newer",
}, async (t) => {
  const [kind] = HISTORY_DATABASES;
  const database = await kind?.create(t);
  const config = threadedConfig(2, HELLO_ROUTE).replace("config:\n", `config:\n  history: ${database?.settings()}\n`);
  const gateway = await startThreaded(t, config, node ?? "");
  const { statuses } = await sendMany(`${gateway.url}/hello`, 400, 8);
  assert.deepEqual(statuses, { 200: 400 });
  await storedExactly(gateway.adminUrl, 400);
});
