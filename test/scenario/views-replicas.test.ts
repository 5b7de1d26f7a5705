/**
 * Every view of the same requests agrees with two replicas that share Redis and PostgreSQL, with two threads each, and
 * after one of them was killed during calls. `npm test` skips it, because it takes minutes: `VIEWS_REQUESTS=5000 npm test -- test/scenario/views`.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/free-port.ts";
import { type GatewayProcess, startGatewayProcess } from "../support/gateway-process.ts";
import { sharedPostgres, temporaryFolder, usageOf } from "../support/history/history-database.ts";
import { skipWithoutPostgres } from "../support/history/postgres-server.ts";
import { startCollector } from "../support/otlp/collector.ts";
import { Random } from "../support/random.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";
import { BUNDLE, threadingNode } from "../support/threaded-gateway.ts";
import { requestsUnderWay } from "../support/under-way.ts";
import { configOf, Generator, PRICES } from "../support/views/generator.ts";
import { type Servers, startServers } from "../support/views/servers.ts";
import { openUi } from "../support/views/ui.ts";
import {
  differencesAtServers,
  differencesByRequest,
  differencesInAudit,
  differencesInBudgets,
  differencesInSpans,
  differencesInSums,
  differencesInUi,
  readViews,
  type ViewedGateway,
} from "../support/views/views.ts";

const REQUESTS = Number(process.env.VIEWS_REQUESTS ?? 0);
const AFTER_KILL = 0.1;
/** A reservation of a dead process ends within 30 s. */
const RESERVED_MS = 30_000;

const node = threadingNode();

class Replica implements ViewedGateway {
  readonly url: string;
  readonly adminUrl: string;
  readonly auditFile: string;
  earlierLog: readonly string[] = [];
  #process: GatewayProcess;
  readonly #start: () => GatewayProcess;

  constructor(port: number, adminPort: number, auditFile: string, start: () => GatewayProcess) {
    this.url = `http://127.0.0.1:${port}`;
    this.adminUrl = `http://127.0.0.1:${adminPort}`;
    this.auditFile = auditFile;
    this.#start = start;
    this.#process = start();
  }

  log(): readonly string[] {
    return this.#process.stdout().split("\n");
  }

  async started(): Promise<void> {
    await this.#process.logged('"started"');
  }

  async kill(): Promise<void> {
    this.#process.child.kill("SIGKILL");
    await this.#process.exited;
    this.earlierLog = [...this.earlierLog, ...this.log()];
  }

  restart(): Promise<void> {
    this.#process = this.#start();
    return this.started();
  }
}

async function startReplica(
  t: TestContext,
  servers: Servers,
  shared: { readonly redis: string; readonly postgres: string; readonly collector: string },
): Promise<Replica> {
  const [port, adminPort] = [await freePort(), await freePort()];
  const folder = temporaryFolder(t);
  const auditFile = join(folder, "audit.log");
  const config = {
    workers: 2,
    adminAddr: `127.0.0.1:${adminPort}`,
    logging: { format: "json" },
    audit: { file: { path: auditFile } },
    store: { redis: shared.redis, timeout: "20s" },
    history: { folder: join(folder, "history"), postgres: shared.postgres },
    telemetry: { otlp: { endpoint: shared.collector, signals: ["traces"] } },
  };
  const file = configFile(t, JSON.stringify(configOf(servers, config, port)));
  writeFileSync(join(dirname(file), "prices.json"), PRICES);
  const command = [node ?? process.execPath, BUNDLE];
  const replica = new Replica(port, adminPort, auditFile, () => startGatewayProcess(t, ["-f", file], { command }));
  await replica.started();
  return replica;
}

test("all views agree with replicas, threads, and a replica that is killed", {
  skip: REQUESTS === 0 ? "VIEWS_REQUESTS is not set" : skipWithoutRedis || skipWithoutPostgres,
}, async (t) => {
  const redis = await startRedis();
  t.after(redis.close);
  const postgres = (await sharedPostgres()).database("views");
  const servers = await startServers(t);
  const collector = await startCollector();
  t.after(collector.close);
  const shared = { redis: redis.url, postgres, collector: collector.httpUrl };
  // The first replica creates the tables.
  const first = await startReplica(t, servers, shared);
  const second = await startReplica(t, servers, shared);
  const replicas = [first, second];
  const generator = new Generator([first.url, second.url], servers, new Random(2));
  t.after(() => generator.close());

  const settled = async (): Promise<void> => {
    for (const replica of replicas)
      await eventually("no request is running", async () => (await requestsUnderWay(replica)) === 0);
    await eventually("the history is written", async () => {
      return (await usageOf(first.adminUrl, "")).total.requests >= generator.sent.length;
    });
    await eventually("the spans are exported", () => {
      return (
        collector.spans().filter(({ attributes }) => "gateway.request.id" in attributes).length >= generator.sent.length
      );
    });
  };
  const ui = await openUi(t, first.adminUrl);
  const compare = async (): Promise<void> => {
    const views = await readViews(...replicas);
    // The client of a busy machine can see the end of a response before the gateway's process runs again.
    const sent = generator.sent.map((one) => ({ ...one, clientMs: Number.POSITIVE_INFINITY }));
    const differences = [
      ...generator.failures,
      ...differencesAtServers(sent, servers.served),
      ...differencesByRequest(sent, servers.served, views),
      ...differencesInAudit(views),
      ...differencesInSpans(views, collector.spans()),
      ...(await differencesInSums(views)),
      ...(await differencesInUi(views, ui)),
    ];
    assert.equal(differences.slice(0, 50).join("\n"), "");
  };

  await generator.send(REQUESTS, 8);
  await settled();
  await compare();

  const { log, json } = await readViews(...replicas);
  const atServers = servers.served.calls.size;
  const { ids, ended } = await generator.startOpen(second.url);
  await eventually("calls are reserved", async () => (await differencesInBudgets({ log, json })).length > 0);
  await second.kill();
  const killedMs = Date.now();
  await ended;
  assert.equal(servers.served.calls.size, atServers + ids.length);
  await eventually("no reservation is left", async () => (await differencesInBudgets({ log, json })).length === 0);
  const reservedMs = Date.now() - killedMs;
  t.diagnostic(`the reservations ended after ${reservedMs} ms`);
  assert.ok(reservedMs <= RESERVED_MS, `the reservations ended after ${reservedMs} ms`);
  await second.restart();
  generator.forgetLimits(second.url);
  await generator.sendMore(Math.ceil(REQUESTS * AFTER_KILL), 8);
  await settled();
  await compare();
});
