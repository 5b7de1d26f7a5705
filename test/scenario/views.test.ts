/**
 * Every view of the same requests agrees with what the clients and the servers counted, and with every other view.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { temporaryFolder, usageOf } from "../support/history/history-database.ts";
import { startCollector } from "../support/otlp/collector.ts";
import { Random } from "../support/random.ts";
import { gatewayFor } from "../support/scenario.ts";
import { requestsUnderWay } from "../support/under-way.ts";
import { configOf, Generator, PRICES } from "../support/views/generator.ts";
import { startServers } from "../support/views/servers.ts";
import { openUi } from "../support/views/ui.ts";
import {
  differencesAtServers,
  differencesByRequest,
  differencesInAudit,
  differencesInSpans,
  differencesInSums,
  differencesInUi,
  readViews,
} from "../support/views/views.ts";

const REQUESTS = Number(process.env.VIEWS_REQUESTS ?? 500);

test("all views of the same requests agree", async (t) => {
  const folder = temporaryFolder(t);
  const auditFile = join(folder, "audit.log");
  const servers = await startServers(t);
  const collector = await startCollector();
  t.after(collector.close);
  const config = {
    adminAddr: "127.0.0.1:0",
    logging: { format: "json" },
    audit: { file: { path: auditFile } },
    history: { folder: join(folder, "history") },
    telemetry: { otlp: { endpoint: collector.httpUrl, signals: ["traces"] } },
  };
  const gateway = await gatewayFor(t, JSON.stringify(configOf(servers, config)), { files: { "prices.json": PRICES } });
  const generator = new Generator([gateway.url()], servers, new Random(1));
  await generator.send(REQUESTS, 8);
  generator.close();
  const { sent, failures } = generator;
  assert.deepEqual(failures, []);
  await eventually("no request is running", async () => (await requestsUnderWay(gateway)) === 0);
  await eventually("the history is written", async () => {
    return (await usageOf(gateway.adminUrl, "")).total.requests >= sent.length;
  });
  await eventually("the spans are exported", () => {
    return collector.spans().filter(({ attributes }) => "gateway.request.id" in attributes).length >= sent.length;
  });
  const views = await readViews({ adminUrl: gateway.adminUrl, log: gateway.log, auditFile });
  const differences = [
    ...differencesAtServers(sent, servers.served),
    ...differencesByRequest(sent, servers.served, views),
    ...differencesInAudit(views),
    ...differencesInSpans(views, collector.spans()),
    ...(await differencesInSums(views)),
    ...(await differencesInUi(views, await openUi(t, gateway.adminUrl))),
  ];
  assert.equal(differences.slice(0, 50).join("\n"), "");
});
