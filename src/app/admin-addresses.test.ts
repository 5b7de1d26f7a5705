import assert from "node:assert/strict";
import { test } from "node:test";
import type { AdminAddress } from "../admin/server/address.ts";
import type { AdminEndpoint } from "../admin/server/endpoint.ts";
import type { ProcessSettings } from "../config/prepare.ts";
import { createAdminAddresses } from "./admin-addresses.ts";
import { StartError } from "./start-error.ts";

const all: AdminEndpoint[] = [{ path: "/everything", doc: "All." }];
const statistics: AdminEndpoint[] = [{ path: "/metrics", doc: "Numbers." }];

function setUp(process: { adminAddr?: string; statsAddr?: string }, defaultAdminAddr?: string, failing?: string) {
  const log: string[] = [];
  const open = async (address: AdminAddress, endpoints: readonly AdminEndpoint[], audience: string) => {
    if (audience === failing) throw Object.assign(new Error("bind"), { code: "EADDRINUSE" });
    const where = address.kind === "tcp" ? `${address.hosts.join("+")}:${address.port}` : address.kind;
    log.push(`open ${where} for ${audience}: ${endpoints.map(({ path }) => path).join(" ")}`);
    const url = address.kind === "off" ? undefined : `http://${audience}`;
    return {
      url,
      port: undefined,
      leave: () => void log.push(`leave ${audience}`),
      close: () => void log.push(`close ${audience}`),
    };
  };
  const config = {
    process: process as ProcessSettings["process"],
    places: {
      adminAddr: "config.yaml:2:3: config.adminAddr",
      statsAddr: "config.yaml:2:3: config.statsAddr",
      store: "",
      history: "",
    },
  };
  const addresses = createAdminAddresses({ config, defaultAdminAddr, open });
  return { log, addresses, opened: () => addresses.open(all, statistics) };
}

test("operators see everything, scrapers the statistics", async () => {
  const { log, addresses, opened } = setUp({ adminAddr: "127.0.0.1:1", statsAddr: "0.0.0.0:2" });
  assert.equal(await opened(), "http://operators");
  addresses.leave();
  addresses.close();
  assert.deepEqual(log, [
    "open 127.0.0.1:1 for operators: /everything",
    "open 0.0.0.0:2 for scrapers: /metrics",
    "leave operators",
    "leave scrapers",
    "close operators",
    "close scrapers",
  ]);
});

test("without an address of its own there is none for scrapers; the configuration goes before the default", async () => {
  const byDefault = setUp({}, "127.0.0.1:0");
  await byDefault.opened();
  assert.deepEqual(byDefault.log, ["open 127.0.0.1:0 for operators: /everything"]);
  const off = setUp({ adminAddr: "off" }, "127.0.0.1:0");
  assert.equal(await off.opened(), undefined);
});

test("without any setting the admin interface is on loopback, port 15000 [S2.1-11] [S1-7]", async () => {
  const { log, opened } = setUp({});
  await opened();
  assert.deepEqual(log, ["open 127.0.0.1+::1:15000 for operators: /everything"]);
});

test("an address that cannot be bound is named with its place, and none stays open", async () => {
  const admin = setUp({ adminAddr: "127.0.0.1:1", statsAddr: "127.0.0.1:2" }, undefined, "operators");
  await assert.rejects(admin.opened(), (error) => {
    assert.ok(error instanceof StartError);
    assert.match(error.message, /^config\.yaml:2:3: config\.adminAddr: cannot listen on 127\.0\.0\.1:1: /);
    return true;
  });
  assert.deepEqual(admin.log, []);
  const stats = setUp({ adminAddr: "127.0.0.1:1", statsAddr: "127.0.0.1:2" }, undefined, "scrapers");
  await assert.rejects(stats.opened(), /config\.statsAddr: cannot listen on 127\.0\.0\.1:2: /);
  assert.equal(stats.log.at(-1), "close operators");
});
