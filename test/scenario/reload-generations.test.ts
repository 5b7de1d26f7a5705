/**
 * A replaced configuration leaves nothing behind: after 200 reloads, whatever caused them, only the configuration that is
 * served is in memory.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { createSnapshot } from "../../src/config/documents/snapshot.ts";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { collectAllGarbage } from "../support/garbage.ts";
import { dataPlane } from "../support/kubernetes/data-plane.ts";
import { gatewayFor } from "../support/scenario.ts";
import { startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const RELOADS = 200;
const REJECTIONS = 50;
const ONLY_ONE = ['{thread="main"} 1'];

const routes = (version: number): string => `
  - gateways: [main]
    policies: { rateLimit: { local: [{ requests: 9, unit: Hours }] }, requestHeaderModifier: { set: { x-v: v${version} } } }
    backends: [{ host: "127.0.0.1:9" }]
  - gateways: [main]
    matches: [{ path: { pathPrefix: /v } }]
    backends: [{ host: "127.0.0.1:${10 + version}" }]
`;
const configOf = (version: number): string =>
  `config: { allowConfigEdit: true }\ngateways: { main: { port: 0, address: 127.0.0.1 } }\nroutes:${routes(version)}`;

async function metric(adminUrl: string): Promise<string[]> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  return [...text.matchAll(/^gateway_config_generations(\{.*)$/gm)].map(([, found = ""]) => found).sort();
}

async function generations(adminUrl: string): Promise<string[]> {
  await collectAllGarbage();
  return metric(adminUrl);
}

const CHANGES: Readonly<Record<string, { readonly end: "loaded" | "rejected"; text(version: number): string }>> = {
  "a changed file": { end: "loaded", text: configOf },
  "a changed file that is rejected": { end: "rejected", text: (version) => `${configOf(version)}  - nonsense\n` },
  "an empty file": { end: "rejected", text: (version) => "#".repeat(version) },
};
for (const [name, { end, text }] of Object.entries(CHANGES)) {
  test(`${name} leaves one configuration in memory`, async (t) => {
    const clock = fakeClock();
    const gateway = await gatewayFor(t, configOf(0), { clock });
    for (let version = 1; version <= (end === "loaded" ? RELOADS : REJECTIONS); version++) {
      const from = gateway.log().length;
      writeFileSync(join(gateway.folder, "config.yaml"), text(version));
      const isDone = (): boolean =>
        gateway
          .log()
          .slice(from)
          .some((line) => line.includes(`configuration ${end}`));
      while (!isDone()) await clock.advance(100);
    }
    assert.deepEqual(await generations(gateway.adminUrl), ONLY_ONE);
  });
}

test("an edit in the UI leaves one configuration in memory", async (t) => {
  const clock = fakeClock();
  const gateway = await gatewayFor(t, configOf(0), { clock });
  const file = join(gateway.folder, "config.yaml");
  for (let version = 1; version <= RELOADS; version++) {
    const { files } = (await (await fetch(`${gateway.adminUrl}/ui/api/config-text`)).json()) as {
      files: { base: string }[];
    };
    const body = JSON.stringify({ file, base: files[0]?.base, text: configOf(version) });
    const saved = await fetch(`${gateway.adminUrl}/ui/api/save`, { method: "POST", body });
    assert.equal(saved.status, 200, await saved.text());
    while (!gateway.log().some((line) => line.includes(`generation=${version + 1}`))) await clock.advance(100);
  }
  assert.deepEqual(await generations(gateway.adminUrl), ONLY_ONE);
});

test("a snapshot of the controller leaves one configuration in memory", async (t) => {
  const objects = (version: number) => [
    {
      apiVersion: "gateway.networking.k8s.io/v1",
      kind: "Gateway",
      metadata: { name: "edge", namespace: "shop" },
      spec: { listeners: [{ name: "http", port: 0, protocol: "HTTP" }] },
    },
    {
      apiVersion: "gateway.networking.k8s.io/v1",
      kind: "HTTPRoute",
      metadata: { name: "web", namespace: "shop" },
      spec: {
        parentRefs: [{ name: "edge" }],
        rules: [
          {
            filters: [
              {
                type: "RequestHeaderModifier",
                requestHeaderModifier: { set: [{ name: "x-v", value: `v${version}` }] },
              },
            ],
            backendRefs: [{ name: "web", port: 80 }],
          },
        ],
      },
    },
    {
      apiVersion: "policy.gateway.internal/v1alpha1",
      kind: "GatewayPolicy",
      metadata: { name: "limit", namespace: "shop" },
      spec: {
        targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: "web" }],
        traffic: { rateLimit: { local: [{ requests: 9, unit: "Hours" }] } },
      },
    },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "web", namespace: "shop" },
      spec: { ports: [{ port: 80 }] },
    },
  ];
  const endpoints = { "shop/web:80": ["127.0.0.1:9"] };
  const { app, source, applied } = await dataPlane(t, objects(0), endpoints);
  for (let version = 1; version <= RELOADS; version++) {
    const done = applied();
    source.take(createSnapshot("shop/edge", objects(version), endpoints));
    assert.equal((await done).isServed, true);
  }
  assert.deepEqual(await generations(app.adminUrl ?? ""), ONLY_ONE);
});

const node = threadingNode();
const GARBAGE = fileURLToPath(new URL("../support/collect-in-threads.js", import.meta.url));

test("a changed file leaves one configuration in memory of each thread", {
  skip: node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false,
}, async (t) => {
  const gateway = await startThreaded(t, threadedConfig(2, routes(0)), node ?? "", [
    "--expose-gc",
    "--import",
    GARBAGE,
  ]);
  const written = readFileSync(gateway.file, "utf8");
  for (let version = 1; version <= RELOADS; version++) {
    writeFileSync(gateway.file, written.replace(routes(0), routes(version)));
    await gateway.process.logged(`configuration loaded generation=${version + 1}`);
  }
  const expected = ['{thread="1"} 1', '{thread="2"} 1', ...ONLY_ONE];
  await eventually("one configuration is left in each thread", async () => {
    gateway.process.child.kill("SIGUSR2");
    return isDeepStrictEqual(await metric(gateway.adminUrl), expected);
  });
});
