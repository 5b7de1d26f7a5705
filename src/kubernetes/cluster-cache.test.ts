import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { type FakeApi, fakeApi } from "../../test/support/kubernetes/fake-api.ts";
import { silentLogger } from "../record/log/logger.ts";
import { ApiError } from "./api-client.ts";
import { KINDS, type WatchedKind, watchKind } from "./cluster-cache.ts";

const SERVICES = "/api/v1/services";
const kind = KINDS.find((one) => one.kind === "Service") as WatchedKind;
const service = (name: string, more: object = {}) => ({ metadata: { name, namespace: "shop", ...more } });

async function started(api: FakeApi, watched = kind) {
  const clock = fakeClock();
  let changes = 0;
  let statuses = 0;
  const watch = watchKind(watched, {
    client: api,
    clock,
    logger: silentLogger,
    random: () => 1,
    changed: () => {
      changes += 1;
    },
    statusChanged: () => {
      statuses += 1;
    },
  });
  await clock.advance(1);
  const names = (): string[] => [...watch.objects()].map(({ metadata }) => metadata.name).sort();
  return { clock, watch, names, changes: () => changes, statuses: () => statuses };
}

test("a list in pages, then changes as they come", async () => {
  const api = fakeApi();
  for (let i = 0; i < 1001; i++) api.put(SERVICES, service(`s${i}`));
  const { watch, names, clock } = await started(api);
  assert.equal(watch.isSynced(), true);
  assert.equal(names().length, 1001);
  assert.equal(api.requests.length, 3);
  api.put(SERVICES, service("new"));
  api.remove(SERVICES, "shop", "s0");
  await clock.advance(1);
  assert.ok(names().includes("new") && !names().includes("s0"));
  assert.equal(api.requests.length, 3, "no second list");
});

test("a watch that was cut is resumed where it stopped, also after bookmarks", async () => {
  const api = fakeApi();
  api.put(SERVICES, service("a"));
  const { names, clock } = await started(api);
  api.bookmark();
  api.cut();
  api.put(SERVICES, service("b"));
  await clock.advance(200);
  assert.deepEqual(names(), ["a", "b"]);
  assert.equal(api.requests.length, 1, "nothing was listed again");
  assert.match(api.watches[1] ?? "", /resourceVersion=102/, "from the bookmark on");
});

test("410: everything is listed again, and what went meanwhile is gone", async () => {
  const api = fakeApi();
  api.put(SERVICES, service("a"));
  api.put(SERVICES, service("b"));
  const { names, clock } = await started(api);
  api.cut(new Error("connection lost"));
  api.remove(SERVICES, "shop", "a");
  api.compact();
  await clock.advance(3_000);
  assert.deepEqual(names(), ["b"]);
  assert.equal(api.requests.length, 2);
});

test("while the server is away what was known stays, with pauses that grow to 2 s", async () => {
  const api = fakeApi();
  api.put(SERVICES, service("a"));
  const { names, clock } = await started(api);
  api.failWith(new Error("connection refused"));
  api.cut(new Error("connection lost"));
  await clock.advance(120_000);
  assert.deepEqual(names(), ["a"]);
  assert.ok(api.watches.length > 50 && api.watches.length < 75, `${api.watches.length} attempts in 2 minutes`);
  api.failWith(undefined);
  api.put(SERVICES, service("b"));
  await clock.advance(2_000);
  assert.deepEqual(names(), ["a", "b"]);
});

test("a kind that is not installed counts as empty, and is found when it comes", async () => {
  const api = fakeApi();
  const optional = { ...kind, isOptional: true };
  api.put(SERVICES, service("a"));
  api.hide(SERVICES);
  const { watch, names, clock } = await started(api, optional);
  assert.equal(watch.isSynced(), true);
  assert.deepEqual(names(), []);
  api.show(SERVICES);
  await clock.advance(10_000);
  assert.deepEqual(names(), ["a"]);
});

test("a kind that must be there is waited for", async () => {
  const api = fakeApi();
  api.hide(SERVICES);
  const { watch } = await started(api);
  assert.equal(watch.isSynced(), false);
});

const POLICIES = "/apis/policy.gateway.internal/v1alpha1/gatewaypolicies";
const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD = "gatewaypolicies.policy.gateway.internal";
const policyKind = KINDS.find((one) => one.kind === "GatewayPolicy") as WatchedKind;

test("a policy that is deleted is gone", async () => {
  const api = fakeApi();
  api.put(CRDS, { metadata: { name: CRD } });
  api.put(POLICIES, service("a"));
  api.put(POLICIES, service("b"));
  const { watch, names, clock } = await started(api, policyKind);
  api.remove(POLICIES, "shop", "a");
  await clock.advance(1);
  assert.deepEqual(names(), ["b"]);
  assert.equal(watch.isReadable(), true);
});

for (const [what, remove] of Object.entries({
  "is being removed, with its objects": (api: FakeApi) => {
    api.put(CRDS, { metadata: { name: CRD, deletionTimestamp: "2026-01-01T00:00:00Z" } as never });
    api.remove(POLICIES, "shop", "a");
  },
  "is being removed while everything is listed again": (api: FakeApi) => {
    api.put(CRDS, { metadata: { name: CRD, deletionTimestamp: "2026-01-01T00:00:00Z" } as never });
    api.failWith(new Error("away"));
    api.cut();
    api.remove(POLICIES, "shop", "a");
    api.compact();
    api.failWith(undefined);
  },
  "is gone": (api: FakeApi) => {
    api.remove(CRDS, "", CRD);
    api.hide(POLICIES);
    api.cut();
  },
  "is denied": (api: FakeApi) => {
    api.failWith(new ApiError(403, "Forbidden", "no rights"));
    api.cut();
  },
}))
  test(`the policies stay known when their kind ${what}, until it can be read again`, async () => {
    const api = fakeApi();
    api.put(CRDS, { metadata: { name: CRD } });
    api.put(POLICIES, service("a"));
    const { watch, names, clock } = await started(api, policyKind);
    remove(api);
    await clock.advance(20_000);
    assert.deepEqual(names(), ["a"]);
    assert.deepEqual([watch.isReadable(), watch.isSynced()], [false, true]);
    api.failWith(undefined);
    api.put(CRDS, { metadata: { name: CRD } });
    api.show(POLICIES);
    api.put(POLICIES, service("c"));
    api.cut();
    api.compact();
    await clock.advance(20_000);
    assert.ok(names().includes("c"));
    assert.equal(watch.isReadable(), true);
  });

test("policies that were never read are waited for", async () => {
  const api = fakeApi();
  api.hide(POLICIES);
  const { watch } = await started(api, policyKind);
  assert.equal(watch.isSynced(), false);
});

test("nothing happens after a stop", async () => {
  const api = fakeApi();
  api.put(SERVICES, service("a"));
  const { watch, changes, clock } = await started(api);
  watch.stop();
  const before = changes();
  api.put(SERVICES, service("b"));
  await clock.advance(10_000);
  assert.equal(changes(), before);
  assert.equal(clock.pending(), 0);
});

test("of ConfigMaps only certificates are kept, and other changes are no news", async () => {
  const maps = "/api/v1/configmaps";
  const api = fakeApi();
  const map = (name: string, data: object) => ({ metadata: { name, namespace: "shop", labels: { a: "b" } }, data });
  api.put(maps, map("roots", { "ca.crt": "PEM", other: "x".repeat(1000) }));
  api.put(maps, map("settings", { "app.conf": "a" }));
  const configMaps = KINDS.find((one) => one.kind === "ConfigMap") as WatchedKind;
  const { watch, names, changes, clock } = await started(api, configMaps);
  assert.deepEqual(names(), ["roots"]);
  const [kept] = [...watch.objects()];
  assert.deepEqual([kept?.data, kept?.metadata.labels], [{ "ca.crt": "PEM" }, undefined]);
  const before = changes();
  api.put(maps, map("settings", { "app.conf": "b" }));
  api.put(maps, map("roots", { "ca.crt": "PEM", other: "y" }));
  await clock.advance(1);
  assert.equal(changes(), before);
  api.put(maps, map("roots", { "ca.crt": "OTHER" }));
  await clock.advance(1);
  assert.equal(changes(), before + 1);
  api.put(maps, map("roots", {}));
  await clock.advance(1);
  assert.deepEqual([names(), changes()], [[], before + 2]);
});

test("a status alone is no change: the object has it, and stays the same object", async () => {
  const routes = "/apis/gateway.networking.k8s.io/v1/httproutes";
  const api = fakeApi();
  const route = (hostname: string, more: object) => ({ ...service("a"), spec: { hostnames: [hostname] }, ...more });
  api.put(routes, route("a.example", {}));
  const httpRoutes = KINDS.find((one) => one.kind === "HTTPRoute") as WatchedKind;
  const { watch, changes, statuses, clock } = await started(api, httpRoutes);
  const [before] = [...watch.objects()];
  const version = before?.metadata.resourceVersion;
  const news = changes();
  api.put(routes, route("a.example", { status: { parents: [1] } }));
  await clock.advance(1);
  assert.deepEqual([changes(), statuses()], [news, 1]);
  assert.equal([...watch.objects()][0], before);
  assert.deepEqual(before?.status, { parents: [1] });
  assert.notEqual(before?.metadata.resourceVersion, version);
  api.put(routes, route("a.example", {}));
  await clock.advance(1);
  assert.deepEqual([changes(), statuses(), before?.status], [news, 2, undefined]);
  api.put(routes, route("b.example", { status: { parents: [1] } }));
  await clock.advance(1);
  assert.deepEqual([changes(), statuses()], [news + 1, 2]);
});
