/**
 * Upgrades under load with a budget in the store: no request fails, and each call is charged once, also if the new
 * process fails after it has taken the store. UPGRADES=50 makes so many upgrades with each store and 1 and 2 threads.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { answerWith, PRICES, provider, USAGE, type Views } from "../support/llm/budgets.ts";
import { rawClient } from "../support/mcp/client.ts";
import { startRemote } from "../support/mcp/http-server.ts";
import { Random } from "../support/random.ts";
import { BUNDLE, threadingNode } from "../support/threaded-gateway.ts";

const newer = threadingNode();
const UPGRADES = Number(process.env.UPGRADES ?? 3);
const CLIENTS = 6;

const VARIANTS = [
  { store: "memory", threads: 1 },
  { store: "folder", threads: 2 },
  { store: "memory", threads: 2 },
  { store: "folder", threads: 1 },
];

for (const { store, threads } of process.env.UPGRADES === undefined ? VARIANTS.slice(0, 2) : VARIANTS) {
  const skip =
    process.platform !== "linux" || (threads > 1 && newer === undefined)
      ? "needs Linux, and for threads Node 22.12 or the package node-linux-<arch>"
      : false;
  test(`${UPGRADES} upgrades with a ${store} store and ${threads} threads: no request fails or is charged twice`, {
    skip,
  }, async (t) => {
    const remote = await startRemote("http");
    t.after(() => remote.close());
    const folder = mkdtempSync(join(tmpdir(), "upgrade-store-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, "config.yaml");
    let served = 0;
    const answer = answerWith(USAGE);
    const host = await provider(t, (...call) => {
      served += 1;
      answer(...call);
    });
    const config = {
      config: {
        workers: threads,
        adminAddr: "127.0.0.1:0",
        store: store === "folder" ? { folder: "state" } : store,
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
                provider: { openAICompatible: { name: "test", baseUrl: `http://${host}/v1` } },
              },
            },
          ],
        },
        { name: "tools", backends: [{ mcp: { targets: [{ name: "remote", mcp: { url: remote.url } }] } }] },
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
    const blocked = await blockedPort(t);

    let isOver = false;
    let calls = 0;
    const problems: string[] = [];
    const load = async (send: () => Promise<string>): Promise<void> => {
      while (!isOver) {
        const problem = await send().catch((error: Error) => `${error.message} ${String(error.cause)}`);
        calls += 1;
        if (problem !== "") problems.push(problem);
      }
    };
    const chat = async (): Promise<string> => {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ model: "gpt-test", messages: [{ role: "user", content: "Say hi." }] }),
      });
      const text = await response.text();
      return response.status === 200 ? "" : `${response.status} ${text}`;
    };
    const list = async (): Promise<string> => {
      const response = await session.request("tools/list");
      return response.result === undefined ? JSON.stringify(response) : "";
    };
    const scrape = async (): Promise<string> => {
      const response = await fetch(`${adminUrl}/metrics`);
      await response.text();
      return response.status === 200 ? "" : `/metrics: ${response.status}`;
    };
    const loads = [list, scrape, ...Array.from({ length: CLIENTS }, () => chat)].map(load);

    const random = new Random(20261119);
    let last = "";
    for (let i = 1; i <= UPGRADES; i++) {
      const until = calls + random.int(400);
      await eventually("some calls later", () => calls >= until);
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
    await Promise.all(loads);
    assert.deepEqual([...new Set(problems)].slice(0, 5), [], `${problems.length} of ${calls} calls`);
    const expected = served * USAGE.total_tokens;
    let spent: number | undefined;
    await eventually(`${served} calls are charged once`, async () => {
      const { budgets } = (await (await fetch(`${adminUrl}/debug/budgets`)).json()) as Views;
      spent = budgets[0]?.keys[0]?.spent;
      return spent === expected;
    }).catch(() => assert.equal(spent, expected));
    if (UPGRADES > 10) t.diagnostic(`${calls} requests, ${served} calls of the provider`);
  });
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
