/**
 * A store that a version before owners wrote (`test/support/store/before-owners.ts`): budgets, keys, and sessions of the
 * standalone configuration continue, and documents in files count what was spent without an owner.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { silentLogger } from "../../src/record/log/logger.ts";
import { openFolderStore } from "../../src/store/folder-store.ts";
import { openRedisStore } from "../../src/store/redis-store.ts";
import type { Store } from "../../src/store/store.ts";
import type { TestGateway } from "../support/gateway.ts";
import { gatewayFor } from "../support/scenario.ts";
import { BEFORE_MS, clockFrom, configBeforeOwners } from "../support/store/before-owners.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";
import { ask, type TenantAnswer } from "../support/tenants.ts";

interface Recorded {
  readonly issuer: string;
  readonly jwks: object;
  readonly apiKey: string;
  readonly cookie: string;
  readonly mcpSession: string;
  readonly entries: Readonly<Record<string, string>>;
}

const before = JSON.parse(
  readFileSync(new URL("../../../test/golden/store/before-owners.json", import.meta.url), "utf8"),
) as Recorded;
const clock = clockFrom(BEFORE_MS + 60_000);
/** As the default of the configuration. */
const PREFIX = "gateway:";
const TEAM = "budgets/team/tokens/month/2026-11/=alice";
const CHAT = JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hello" }] });

const spentBefore = (key: string): number => Number(before.entries[key]);

function call(gateway: TestGateway, host: string): Promise<TenantAnswer> {
  const headers = { "content-type": "application/json", authorization: `Bearer ${before.apiKey}` };
  return ask(gateway, host, "/v1/chat/completions", headers, CHAT);
}

const spent = ({ headers }: TenantAnswer): number => 1_000 - Number(headers["x-budget-remaining"]);

interface StorePlace {
  readonly config: object;
  open(): Promise<Store>;
}

const PLACES: Readonly<Record<string, (t: TestContext) => Promise<StorePlace>>> = {
  async folder(t) {
    const folder = mkdtempSync(join(tmpdir(), "store-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    return { config: { folder }, open: () => openFolderStore(folder, { clock, logger: silentLogger }) };
  },
  async redis(t) {
    const { url, close } = await startRedis();
    t.after(close);
    const options = { url, prefix: PREFIX, timeoutMs: 5_000 };
    return { config: { redis: url, prefix: PREFIX }, open: () => openRedisStore(options, silentLogger, clock) };
  },
};

async function start(t: TestContext, place: StorePlace): Promise<TestGateway> {
  const store = await place.open();
  for (const [key, value] of Object.entries(before.entries)) await store.set(key, value);
  await store.sync();
  await store.close();
  const yaml = configBeforeOwners(before.jwks, `${before.issuer}/token`, place.config);
  return gatewayFor(t, yaml, { clock });
}

for (const [kind, placeFor] of Object.entries(PLACES)) {
  const skip = kind === "redis" && skipWithoutRedis;

  test(`${kind}: budgets, API keys, browser sessions and MCP sessions of a standalone configuration continue`, {
    skip,
  }, async (t) => {
    const gateway = await start(t, await placeFor(t));
    const llm = await call(gateway, "llm");
    assert.equal(llm.status, 200, llm.body);
    assert.ok(spent(llm) > spentBefore("budgets/monthly/tokens/month/2026-11/=alice"));
    const keyed = await call(gateway, "keys");
    assert.equal(keyed.status, 200, keyed.body);
    const page = await ask(gateway, "pages", "/", { accept: "text/html", cookie: before.cookie });
    assert.equal(page.body, "page");
    const listed = await fetch(`${gateway.url("mcp")}/mcp`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-session-id": before.mcpSession,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 2, method: "tools/list" }),
    });
    assert.equal(listed.status, 200);
    assert.match(await listed.text(), /"tools"/);
  });

  test(`${kind}: documents in files accept the API key, and count what was spent without an owner in this period`, {
    skip,
  }, async (t) => {
    const place = await placeFor(t);
    const gateway = await start(t, place);
    const key = before.entries["budgets/key/tokens/month/2026-11/=68f8f94c690f"];
    assert.ok(key !== undefined);
    const first = await call(gateway, "a");
    assert.equal(first.status, 200, first.body);
    assert.ok(spent(first) > Math.min(spentBefore(TEAM), Number(key)));
    const second = await call(gateway, "b");
    assert.ok(spent(second) > spent(first), "both namespaces charge the account of the earlier version");
    await gateway.close();
    const store = await place.open();
    t.after(() => store.close());
    const read = async (name: string): Promise<number> => Number(await store.get(name));
    const own = [
      await read(TEAM.replace("budgets/", "budgets/@a/")),
      await read(TEAM.replace("budgets/", "budgets/@b/")),
    ];
    assert.ok(own.every((amount) => amount > 0));
    // A replica of the earlier version sees the spending of this one.
    assert.equal(await read(TEAM), spentBefore(TEAM) + own.reduce((sum, amount) => sum + amount, 0));
  });
}
