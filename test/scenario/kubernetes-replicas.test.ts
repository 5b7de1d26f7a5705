/**
 * Two controller replicas over one API server in memory: data planes are served by whichever replica they reach, and
 * only the leader writes.
 */
import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fieldsOf, listOf } from "../../src/config/text/value-shapes.ts";
import { type ApiClient, ApiError, type ApiRequest } from "../../src/kubernetes/api-client.ts";
import { DEPLOYMENTS, KINDS, pathOfKind } from "../../src/kubernetes/cluster-cache.ts";
import { type Controller, type ControllerOptions, startController } from "../../src/kubernetes/controller.ts";
import { type Following, followController } from "../../src/kubernetes/follow-controller.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { type FakeClock, fakeClock } from "../support/fake-clock.ts";
import { type FakeApi, fakeApi } from "../support/kubernetes/fake-api.ts";

const GATEWAY_API = "gateway.networking.k8s.io/v1";
const LEASES = "/apis/coordination.k8s.io/v1/leases";
const LEADER_ADDRESS = "policy.gateway.internal/address";
const GATEWAYS = `/apis/${GATEWAY_API}/gateways`;

/** Replicas and data planes share this process, so exchanges between them complete within these turns of its loop. */
const TURNS = 60;
const STEP_MS = 500;
const GIVE_UP_MS = 600_000;

/** The network and the writes of one replica. */
interface Replica {
  readonly controller: Controller;
  network: "good" | "lost" | "hangs";
  readonly statusWrites: ApiRequest[];
}

interface Setup {
  readonly api: FakeApi;
  readonly clock: FakeClock;
  start(identity: string, deploy?: ControllerOptions["deploy"]): Promise<Replica>;
  /** Resolves when the replica is ready. */
  replica(identity: string): Promise<Replica>;
  follow(replica: Replica): Promise<Following>;
  /** Advances the clock until the condition holds. */
  until(condition: () => boolean): Promise<void>;
}

function setup(t: TestContext): Setup {
  const folder = mkdtempSync(join(tmpdir(), "replicas-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "token"), "good");
  const clock = fakeClock();
  const api = fakeApi();
  api.install(...[...KINDS, DEPLOYMENTS].map(pathOfKind));
  api.put(`/apis/${GATEWAY_API}/gatewayclasses`, {
    metadata: { name: "gateway" },
    spec: { controllerName: "policy.gateway.internal/gateway" },
  });
  api.put(GATEWAYS, {
    metadata: { name: "edge", namespace: "infra", generation: 1 },
    spec: { gatewayClassName: "gateway", listeners: [{ name: "http", port: 80, protocol: "HTTP" }] },
  });

  async function until(condition: () => boolean): Promise<void> {
    const giveUpMs = clock.monotonicMs() + GIVE_UP_MS;
    while (!condition()) {
      assert.ok(clock.monotonicMs() < giveUpMs, "the condition did not become true");
      await clock.advance(STEP_MS);
      for (let i = 0; i < TURNS; i += 1) await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async function start(identity: string, deploy?: ControllerOptions["deploy"]): Promise<Replica> {
    const state: Omit<Replica, "controller"> & { controller?: Controller } = { network: "good", statusWrites: [] };
    const client: ApiClient = {
      ...api,
      async request(request) {
        if (state.network === "lost") throw new Error("connection refused");
        if (state.network === "hangs")
          return new Promise((_, reject) => {
            clock.after(request.timeoutMs ?? 30_000, () => reject(new Error("timeout")));
          });
        if (request.path.endsWith("/tokenreviews"))
          return {
            status: {
              authenticated: true,
              audiences: ["gateway-controller"],
              user: { username: "system:serviceaccount:infra:edge-gateway" },
            },
          };
        if (request.type === "application/apply-patch+yaml") throw new ApiError(403, "Forbidden", "no rights");
        if (request.path.endsWith("/status")) state.statusWrites.push(request);
        return api.request(request);
      },
    };
    const controller = await startController({
      client,
      clock,
      logger: silentLogger,
      random: () => 0.5,
      namespace: "system",
      identity,
      listen: { host: "127.0.0.1", port: 0 },
      host: "127.0.0.1",
      url: "https://127.0.0.1:9443",
      deploy,
    });
    t.after(() => controller.stop());
    return Object.assign(state, { controller });
  }

  let instances = 0;
  return {
    api,
    clock,
    until,
    start,
    async replica(identity) {
      const replica = await start(identity);
      await until(() => replica.controller.isReady());
      return replica;
    },
    async follow({ controller }) {
      const secret = fieldsOf(fieldsOf(api.get("/api/v1/secrets", "system", "gateway-controller-certificate")).data);
      instances += 1;
      const following = followController({
        url: `https://127.0.0.1:${controller.port}`,
        certificate: Buffer.from(String(secret["tls.crt"]), "base64").toString(),
        gateway: "infra/edge",
        instance: `pod-${instances}`,
        tokenFile: join(folder, "token"),
        stateFolder: undefined,
        clock,
        logger: silentLogger,
        random: () => 0,
      });
      t.after(following.stop);
      following.source.onChange(() => {
        const version = following.source.current()?.version ?? "";
        following.source.applied(version, { isServed: true, problems: [], failures: [] });
      });
      await until(() => following.source.snapshot() !== undefined);
      return following;
    },
  };
}

function programmed(api: FakeApi): string {
  const conditions = listOf(fieldsOf(api.get(GATEWAYS, "infra", "edge")?.status).conditions).map(fieldsOf);
  return String(conditions.find(({ type }) => type === "Programmed")?.status);
}

const leads = ({ controller }: Replica): boolean => controller.state().isLeader === true;

test("a data plane that reaches the standby is served, and the leader reports it", async (t) => {
  const { api, until, ...all } = setup(t);
  const one = await all.replica("one");
  await until(() => leads(one));
  const two = await all.replica("two");
  const { source } = await all.follow(two);
  assert.equal(source.snapshot()?.gateway, "infra/edge");
  await until(() => programmed(api) === "True");
  assert.equal(two.statusWrites.length, 0, "the standby writes nothing");
});

test("a replica that has the address of the last leader does not report to itself without end", async (t) => {
  const { api, clock, until, ...all } = setup(t);
  const lease = (address: string): void =>
    api.put(LEASES, {
      metadata: { name: "gateway-controller", namespace: "system", annotations: { [LEADER_ADDRESS]: address } },
      spec: { holderIdentity: "before", leaseDurationSeconds: 15, renewTime: new Date(clock.now()).toISOString() },
    });
  lease("127.0.0.1:1");
  const one = await all.replica("one");
  lease(`127.0.0.1:${one.controller.port}`);
  let reports = 0;
  const count = (message: unknown): void => {
    if (String(fieldsOf(fieldsOf(message).request).url).startsWith("/v1/replicas/")) reports += 1;
  };
  subscribe("http.server.request.start", count);
  t.after(() => unsubscribe("http.server.request.start", count));
  await all.follow(one);
  await until(() => reports > 0);
  const untilMs = clock.monotonicMs() + 5_000;
  reports = 0;
  await until(() => clock.monotonicMs() >= untilMs);
  assert.equal(leads(one), false);
  // One every 5 s, and one for a change.
  assert.ok(reports <= 2, `${reports} reports`);
});

test("the Gateway has a current status while changes arrive faster than acknowledgments", async (t) => {
  const { api, clock, until, ...all } = setup(t);
  const one = await all.replica("one");
  await until(() => leads(one));
  const { source } = await all.follow(one);
  await until(() => programmed(api) === "True");
  source.onChange(() => undefined);
  const observed = (): number => {
    const conditions = listOf(fieldsOf(api.get(GATEWAYS, "infra", "edge")?.status).conditions).map(fieldsOf);
    return Number(conditions.find(({ type }) => type === "Accepted")?.observedGeneration);
  };
  const sinceMs = clock.monotonicMs();
  for (let generation = 2; observed() < 2; generation += 1) {
    assert.ok(clock.monotonicMs() - sinceMs < 5_000, "no status for 5 s");
    const listeners = [{ name: "http", port: 80 + generation, protocol: "HTTP" }];
    const status = api.get(GATEWAYS, "infra", "edge")?.status;
    const metadata = { name: "edge", namespace: "infra", generation };
    api.put(GATEWAYS, { metadata, spec: { gatewayClassName: "gateway", listeners }, status });
    const nextMs = clock.monotonicMs() + 2 * STEP_MS;
    await until(() => clock.monotonicMs() >= nextMs);
  }
});

test("the leader creates the Secret with its certificate again, so that a replica that restarts has the same", async (t) => {
  const { api, until, ...all } = setup(t);
  const one = await all.replica("one");
  await until(() => leads(one));
  const secret = () => api.get("/api/v1/secrets", "system", "gateway-controller-certificate");
  const data = secret()?.data;
  assert.ok(data);
  api.remove("/api/v1/secrets", "system", "gateway-controller-certificate");
  await until(() => secret() !== undefined);
  assert.deepEqual(secret()?.data, data);
});

for (const network of ["lost", "hangs"] as const)
  test(`a leader whose network ${network} stops writing, and the Gateway stays Programmed`, async (t) => {
    const { api, clock, until, ...all } = setup(t);
    const one = await all.replica("one");
    await until(() => leads(one));
    const two = await all.replica("two");
    // Each replica has a data plane, so that each leader needs the other's report.
    await all.follow(one);
    await all.follow(two);
    await until(() => programmed(api) === "True");
    for (const [leader, standby] of [
      [one, two],
      [two, one],
    ] as const) {
      leader.network = network;
      const before = leader.statusWrites.length;
      let lastLedMs = clock.monotonicMs();
      const lostMs = lastLedMs;
      await until(() => {
        assert.equal(leads(leader) && leads(standby), false, "two leaders");
        assert.notEqual(programmed(api), "False");
        if (leads(leader)) lastLedMs = clock.monotonicMs();
        return leads(standby);
      });
      assert.ok(lastLedMs - lostMs <= 10_000, `it led for ${lastLedMs - lostMs} ms without renewing`);
      assert.equal(leader.statusWrites.length, before, "no status was written without contact");
      await until(() => !leader.controller.isReady());
      leader.network = "good";
      await until(() => leader.controller.isReady());
      // Twice the time after which a leader reports a Gateway without data planes.
      const untilMs = clock.monotonicMs() + 30_000;
      await until(() => {
        assert.equal(programmed(api), "True");
        return clock.monotonicMs() >= untilMs;
      });
      assert.equal(leads(standby), true);
    }
  });

test("without data planes the Gateway is no longer Programmed", async (t) => {
  const { api, until, ...all } = setup(t);
  const one = await all.replica("one");
  await until(() => leads(one));
  const two = await all.replica("two");
  const { stop } = await all.follow(two);
  await until(() => programmed(api) === "True");
  stop();
  await until(() => programmed(api) === "False");
});

const POLICIES = "/apis/policy.gateway.internal/v1alpha1/gatewaypolicies";

test("a controller that cannot read the policies serves no data plane, and the Gateway shows why", async (t) => {
  const { api, clock, until, ...all } = setup(t);
  const shownReason = (): unknown =>
    listOf(fieldsOf(api.get(GATEWAYS, "infra", "edge")?.status).conditions)
      .map(fieldsOf)
      .find(({ type }) => type === "policy.gateway.internal/PoliciesReadable")?.reason;
  api.hide(POLICIES);
  const replica = await all.start("one");
  await until(() => shownReason() === "KindUnavailable");
  assert.equal(replica.controller.isReady(), false);
  api.show(POLICIES);
  await until(() => replica.controller.isReady());
  await all.follow(replica);
  await until(() => programmed(api) === "True");
  assert.equal(shownReason(), undefined);
});

test("a controller without the rights to deploy says so in the status of the Gateway", async (t) => {
  const { api, until, start } = setup(t);
  await start("one", { image: "image", replicas: 1, serviceType: "ClusterIP", backendNetworks: "" });
  const condition = () =>
    listOf(fieldsOf(api.get(GATEWAYS, "infra", "edge")?.status).conditions)
      .map(fieldsOf)
      .find(({ type }) => type === "Programmed");
  await until(() => condition() !== undefined);
  assert.deepEqual(
    [condition()?.reason, condition()?.message],
    ["NoResources", "ServiceAccount infra/edge-gateway cannot be deployed: no rights"],
  );
});
