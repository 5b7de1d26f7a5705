/**
 * The parameters of data planes: a controller over an API server in memory deploys a Gateway, and its parameters change
 * while data planes serve it. Data planes run from the Deployment as a kubelet would start them, with real Redis.
 */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startApp } from "../../src/app/app.ts";
import type { App } from "../../src/app/app-options.ts";
import { systemClock } from "../../src/base/clock.ts";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { fieldsOf, listOf } from "../../src/config/text/value-shapes.ts";
import type { ApiClient } from "../../src/kubernetes/api-client.ts";
import { AUTOSCALERS, DEPLOYMENTS, KINDS, pathOfKind } from "../../src/kubernetes/cluster-cache.ts";
import { startController } from "../../src/kubernetes/controller.ts";
import { followController } from "../../src/kubernetes/follow-controller.ts";
import { processConfig } from "../../src/kubernetes/process-config.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/free-port.ts";
import { type FakeApi, fakeApi } from "../support/kubernetes/fake-api.ts";
import { rawClient } from "../support/mcp/client.ts";
import { PETSTORE } from "../support/mcp/petstore.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";

const GATEWAY_API = "/apis/gateway.networking.k8s.io/v1";
const GATEWAYS = `${GATEWAY_API}/gateways`;
const OWN_API = "/apis/policy.gateway.internal/v1alpha1";
const SECRETS = "/api/v1/secrets";
const REFERENCE = { group: "policy.gateway.internal", kind: "GatewayParameters", name: "large" };
const SESSION_KEY = "session-key-of-the-test-0123456789";

interface Deployed {
  readonly api: FakeApi;
  readonly url: string;
  /** The Deployments that the controller applied, in order. */
  readonly deployments: KubernetesObject[];
  setParameters(spec: object): void;
  setSecret(name: string, data: Readonly<Record<string, string>>): void;
  /** Contains the condition of the Gateway as `status reason`. */
  condition(type: string): string;
  message(type: string): string;
}

async function deployed(
  t: TestContext,
  prepare: (cluster: Pick<Deployed, "api" | "setParameters" | "setSecret">) => void,
) {
  const api = fakeApi();
  const deployments: KubernetesObject[] = [];
  api.install(...[...KINDS, DEPLOYMENTS, AUTOSCALERS].map(pathOfKind));
  api.put(`${GATEWAY_API}/gatewayclasses`, {
    metadata: { name: "gateway" },
    spec: { controllerName: "policy.gateway.internal/gateway" },
  });
  const cluster = {
    api,
    setParameters: (spec: object): void =>
      api.put(`${OWN_API}/gatewayparameters`, { metadata: { name: "large", namespace: "infra" }, spec }),
    setSecret(name: string, texts: Readonly<Record<string, string>>): void {
      const data = Object.fromEntries(
        Object.entries(texts).map(([key, text]) => [key, Buffer.from(text).toString("base64")]),
      );
      api.put(SECRETS, { metadata: { name, namespace: "infra" }, data });
    },
  };
  prepare(cluster);
  api.put(GATEWAYS, {
    metadata: { name: "edge", namespace: "infra", uid: "uid-1", generation: 1 },
    spec: {
      gatewayClassName: "gateway",
      infrastructure: { parametersRef: REFERENCE },
      listeners: [{ name: "http", port: 0, protocol: "HTTP" }],
    },
  });
  const client: ApiClient = {
    ...api,
    async request(request) {
      if (request.path.endsWith("/tokenreviews")) {
        const user = { username: "system:serviceaccount:infra:edge-gateway" };
        return { status: { authenticated: true, audiences: ["gateway-controller"], user } };
      }
      if (request.type !== "application/apply-patch+yaml") return api.request(request);
      const object = request.body as KubernetesObject;
      if (object.kind === "Deployment") deployments.push(object);
      return object;
    },
  };
  const port = await freePort();
  const url = `https://127.0.0.1:${port}`;
  const controller = await startController({
    client,
    clock: systemClock,
    logger: silentLogger,
    random: () => 0.5,
    namespace: "system",
    identity: "one",
    listen: { host: "127.0.0.1", port },
    host: "127.0.0.1",
    url,
    deploy: { image: "image", replicas: 1, serviceType: "ClusterIP", backendNetworks: "" },
  });
  t.after(() => controller.stop());
  await eventually("a Deployment", () => deployments.length > 0);
  const conditionOf = (type: string): Readonly<Record<string, unknown>> =>
    listOf(fieldsOf(api.get(GATEWAYS, "infra", "edge")?.status).conditions)
      .map(fieldsOf)
      .find((one) => one.type === type) ?? {};
  const result: Deployed = {
    ...cluster,
    url,
    deployments,
    condition: (type) => `${String(conditionOf(type).status)} ${String(conditionOf(type).reason)}`,
    message: (type) => String(conditionOf(type).message),
  };
  return result;
}

interface Pod {
  readonly app: App;
  readonly port: number;
  readonly output: string[];
}

/** Starts a pod of the Deployment: its variables and volumes are those of the manifest, and the node is this process. */
async function startPod(t: TestContext, { api, url, deployments }: Deployed, name: string): Promise<Pod> {
  const folder = mkdtempSync(join(tmpdir(), "pod-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const spec = fieldsOf(fieldsOf(fieldsOf(deployments.at(-1)?.spec).template).spec);
  const [container = {}] = listOf(spec.containers).map(fieldsOf);
  const mounts = listOf(container.volumeMounts).map(fieldsOf);
  const pathOf = (mountPath: string): string => {
    const mount = mounts.find((one) => one.mountPath === mountPath);
    return mount === undefined ? mountPath : join(folder, String(mount.name));
  };
  for (const volume of listOf(spec.volumes).map(fieldsOf)) {
    const at = join(folder, String(volume.name));
    mkdirSync(at);
    for (const { secret, serviceAccountToken } of listOf(fieldsOf(volume.projected).sources).map(fieldsOf)) {
      if (serviceAccountToken) writeFileSync(join(at, "token"), "good");
      for (const { key, path } of listOf(fieldsOf(secret).items).map(fieldsOf)) {
        const data = api.get(SECRETS, "infra", String(fieldsOf(secret).name))?.data;
        writeFileSync(join(at, String(path)), Buffer.from(String(fieldsOf(data)[String(key)]), "base64"));
      }
    }
  }
  const variables = Object.fromEntries(
    listOf(container.env)
      .map(fieldsOf)
      .map((one) => [String(one.name), "value" in one ? pathOf(String(one.value)) : name]),
  );
  const { text, environment } = processConfig(variables);
  const following = followController({
    url,
    certificate: variables.GATEWAY_CONTROLLER_CA,
    gateway: "infra/edge",
    instance: name,
    tokenFile: join(folder, "token", "token"),
    stateFolder: undefined,
    clock: systemClock,
    logger: silentLogger,
    random: Math.random,
  });
  t.after(following.stop);
  await following.first;
  const output: string[] = [];
  const app = await startApp({
    // Pods have addresses of their own, where this port is free.
    sources: { text: text.replace("0.0.0.0:15020", "127.0.0.1:0") },
    environment,
    clock: systemClock,
    cluster: following.source,
    output: { write: (line: string) => void output.push(line), dropped: () => 0, flushSync: () => undefined },
    version: "test",
    readStdin: () => "",
    defaultAdminAddr: "127.0.0.1:0",
  });
  t.after(() => Promise.all([app.stop(), app.stop()]));
  return { app, port: app.ports().get("infra/edge:0") ?? 0, output };
}

/** Distributes connections over the pods in turn, as kube-proxy does. */
async function startService(t: TestContext, pods: readonly Pod[]): Promise<string> {
  let next = 0;
  const server = createServer((client) => {
    const pod = connect(pods[next++ % pods.length]?.port ?? 0, "127.0.0.1");
    client.pipe(pod).pipe(client);
    for (const socket of [client, pod])
      socket.on("error", () => {
        client.destroy();
        pod.destroy();
      });
  });
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  t.after(() => void server.close());
  return `http://127.0.0.1:${port}`;
}

test("invalid parameters keep the Deployment, and valid ones change it", async (t) => {
  const { deployments, setParameters, condition } = await deployed(t, (cluster) =>
    cluster.setParameters({ replicas: 2 }),
  );
  await eventually("accepted", () => condition("Accepted") === "True Accepted");
  setParameters({ replicas: 3, replica: 2 });
  await eventually("accepted", () => condition("Accepted") === "False InvalidParameters");
  assert.equal(deployments.length, 1, "the Deployment stays");
  setParameters({ replicas: 3 });
  await eventually("accepted", () => condition("Accepted") === "True Accepted");
  assert.deepEqual(
    deployments.map(({ spec }) => fieldsOf(spec).replicas),
    [2, 3],
  );
});

for (const { name, config, reason } of [
  {
    name: "a Secret that does not exist",
    config: { store: { redis: { secretRef: { name: "absent", key: "url" } } } },
    reason: "spec.config.store.redis.secretRef: Secret infra/absent was not found",
  },
  {
    name: "a key that its Secret does not have",
    config: { sessionKey: { secretRef: { name: "shared", key: "none" } } },
    reason: "spec.config.sessionKey.secretRef: Secret infra/shared has no key none",
  },
  {
    name: "a session key that is too short",
    config: { sessionKey: { secretRef: { name: "shared", key: "short" } } },
    reason: "spec.config.sessionKey",
  },
  {
    name: "a secret in plain text",
    config: { store: { redis: "redis://:hidden-password@redis.infra:6379" } },
    reason: "spec.config.store.redis: a secret cannot be in plain text: use secretRef",
  },
  {
    name: "an unknown field",
    config: { stor: { redis: "redis://redis.infra" } },
    reason: 'spec.config.stor: unknown field, did you mean "store"?',
  },
  {
    name: "a Secret in another namespace",
    config: { sessionKey: { secretRef: { name: "shared", key: "session", namespace: "other" } } },
    reason: "spec.config.sessionKey.secretRef.namespace: not supported",
  },
  {
    name: "a file of the data plane",
    config: { audit: { file: { path: "/audit.log" } } },
    reason: "spec.config.audit.file: a data plane cannot use a file",
  },
  {
    name: "audit records without their exporter",
    config: { audit: { otlp: true } },
    reason: "spec.config.audit.otlp: needs `config.telemetry.otlp`",
  },
])
  test(`a configuration with ${name} keeps the last Deployment`, async (t) => {
    const { deployments, setParameters, condition, message, api } = await deployed(t, (cluster) => {
      cluster.setSecret("shared", { session: SESSION_KEY, short: "hidden-password" });
      cluster.setParameters({ config: { sessionKey: { secretRef: { name: "shared", key: "session" } } } });
    });
    await eventually("accepted", () => condition("Accepted") === "True Accepted");
    setParameters({ config });
    await eventually("refused", () => condition("Accepted") === "False InvalidParameters");
    assert.ok(message("Accepted").includes(`GatewayParameters infra/large: ${reason}`), message("Accepted"));
    assert.equal(deployments.length, 1, "the Deployment stays");
    assert.doesNotMatch(JSON.stringify(api.get(GATEWAYS, "infra", "edge")?.status), /hidden-password/);
  });

test("a changed value of a Secret replaces the pods, and its value is in no manifest", async (t) => {
  const literal = "$(HOME) $${HOME} ${HOME} $HOME";
  const { deployments, setSecret, setParameters } = await deployed(t, (cluster) => {
    cluster.setSecret("shared", { session: `${SESSION_KEY}\n` });
    cluster.setParameters({
      config: {
        sessionKey: { secretRef: { name: "shared", key: "session" } },
        drainTimeout: "90s",
        trustedProxies: ["10.0.0.0/8"],
        telemetry: { otlp: { endpoint: "http://otel:4318", resource: { literal } } },
      },
    });
  });
  const templateOf = (deployment: KubernetesObject | undefined) => fieldsOf(fieldsOf(deployment?.spec).template);
  const { spec } = templateOf(deployments[0]);
  assert.equal(fieldsOf(spec).terminationGracePeriodSeconds, 105, "the drain timeout and 15 s");
  setSecret("shared", { session: `${SESSION_KEY}-2` });
  await eventually("a second Deployment", () => deployments.length === 2);
  const [before, after] = deployments.map((one) => fieldsOf(fieldsOf(templateOf(one).metadata).annotations));
  assert.notDeepEqual(before, after);
  assert.deepEqual(templateOf(deployments[1]).spec, spec, "only the digest of the Secret changed");
  setSecret("other", { unused: "x" });
  setParameters({ config: { drainTimeout: "90s" } });
  await eventually("a third Deployment", () => deployments.length === 3);
  assert.doesNotMatch(JSON.stringify(deployments), new RegExp(SESSION_KEY), "a Secret in a manifest");
});

interface Shared {
  readonly mcp: readonly number[];
  readonly admittedTokens: number;
  readonly keyed: readonly number[];
}

const BUDGET_TOKENS = 2000;

function prepareUsers({ api }: Pick<Deployed, "api">): void {
  const meta = (name: string) => ({ name, namespace: "infra", generation: 1 });
  const rule = (prefix: string, backend: string) => ({
    matches: [{ path: { type: "PathPrefix", value: prefix } }],
    backendRefs: [{ group: "policy.gateway.internal", kind: "Backend", name: backend }],
  });
  const put = (plural: string, name: string, spec: object): void =>
    api.put(`${OWN_API}/${plural}`, { metadata: meta(name), spec });
  const description = { secretRef: { name: "description", key: "openapi.json" } };
  const target = { name: "api", openapi: { file: description, server: "https://api.example.com" } };
  put("backends", "tools", { mcp: { targets: [target] } });
  put("backends", "models", { ai: { provider: { demo: {} } } });
  for (const [name, prefix, backend] of [
    ["tools", "/mcp", "tools"],
    ["models", "/models", "models"],
    ["keyed", "/keyed", "models"],
  ] as const)
    api.put(`${GATEWAY_API}/httproutes`, {
      metadata: meta(name),
      spec: { parentRefs: [{ name: "edge" }], rules: [rule(prefix, backend)] },
    });
  const targetRefs = (name: string) => [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name }];
  const limit = { name: "exact", tokens: BUDGET_TOKENS, per: "day", reserveOutput: true };
  put("gatewaypolicies", "budget", {
    targetRefs: targetRefs("models"),
    traffic: { budgets: { limits: [limit] } },
  });
  put("gatewaypolicies", "keys", {
    targetRefs: targetRefs("keyed"),
    traffic: { apiKeyAuthentication: { stored: true } },
  });
}

/** Uses two pods through a Service, with a new connection for each call. */
async function useService(t: TestContext, cluster: Deployed): Promise<Shared> {
  const pods = [await startPod(t, cluster, "pod-1"), await startPod(t, cluster, "pod-2")];
  const service = await startService(t, pods);
  const init = (body: object, headers: object = {}) => ({
    method: "POST",
    headers: { "content-type": "application/json", connection: "close", ...headers },
    body: JSON.stringify(body),
  });
  const client = rawClient(`${service}/mcp`);
  const message = { jsonrpc: "2.0", id: 1, method: "tools/list", params: {} };
  await client.initialize();
  const mcp: number[] = [];
  for (let i = 0; i < 40; i += 1) mcp.push((await client.post(message, { connection: "close" })).status);

  const chat = { model: "m", messages: [{ role: "user", content: "hello" }], max_tokens: 40 };
  let admittedTokens = 0;
  for (let refused = 0; refused < 4; ) {
    const response = await fetch(`${service}/models/v1/chat/completions`, init(chat));
    const { usage } = (await response.json()) as { usage?: { total_tokens: number } };
    if (response.status === 200) admittedTokens += usage?.total_tokens ?? 0;
    else refused += 1;
  }

  const make = { name: "alice", namespace: "infra" };
  const made = await fetch(`${pods[0]?.app.adminUrl}/keys`, { method: "POST", body: JSON.stringify({ make }) });
  const { key } = (await made.json()) as { key: string };
  const keyed: number[] = [];
  for (let i = 0; i < 10; i += 1)
    keyed.push((await fetch(`${service}/keyed/v1/chat/completions`, init(chat, { "x-api-key": key }))).status);
  const output = pods.flatMap((pod) => pod.output).join("");
  assert.doesNotMatch(output, new RegExp(SESSION_KEY), "a Secret in the log");
  const { text } = await fetch(`${pods[0]?.app.adminUrl}/config_dump`).then(async (dump) => ({
    text: await dump.text(),
  }));
  assert.doesNotMatch(text, new RegExp(SESSION_KEY), "a Secret in the dump");
  return { mcp, admittedTokens, keyed };
}

function countOf(statuses: readonly number[], status: number): number {
  return statuses.filter((one) => one === status).length;
}

test("two pods with a common Redis share MCP sessions, budgets, and API keys behind their Service", {
  skip: skipWithoutRedis,
}, async (t) => {
  const password = "password-of-the-test-0123456789";
  const redis = await startRedis("--requirepass", password);
  t.after(redis.close);
  const cluster = await deployed(t, (objects) => {
    objects.setSecret("description", { "openapi.json": JSON.stringify(PETSTORE) });
    objects.setSecret("shared", { session: SESSION_KEY, password: `${password}\n` });
    objects.setParameters({
      replicas: 2,
      config: {
        store: { redis: redis.url, password: { secretRef: { name: "shared", key: "password" } }, timeout: "20s" },
        sessionKey: { secretRef: { name: "shared", key: "session" } },
      },
    });
    prepareUsers(objects);
  });
  const { mcp, admittedTokens, keyed } = await useService(t, cluster);
  t.diagnostic(`MCP ${countOf(mcp, 200)} of ${mcp.length}, ${admittedTokens} tokens, keys ${countOf(keyed, 200)}`);
  assert.equal(countOf(mcp, 200), mcp.length);
  assert.ok(admittedTokens > BUDGET_TOKENS / 2 && admittedTokens <= BUDGET_TOKENS, `${admittedTokens} tokens`);
  assert.equal(countOf(keyed, 200), keyed.length);
});

test("two pods without a store share nothing", async (t) => {
  const cluster = await deployed(t, (objects) => {
    objects.setSecret("description", { "openapi.json": JSON.stringify(PETSTORE) });
    objects.setParameters({ replicas: 2 });
    prepareUsers(objects);
  });
  const { mcp, admittedTokens, keyed } = await useService(t, cluster);
  t.diagnostic(`MCP ${countOf(mcp, 200)} of ${mcp.length}, ${admittedTokens} tokens, keys ${countOf(keyed, 200)}`);
  assert.equal(countOf(mcp, 404), mcp.length / 2);
  assert.ok(admittedTokens > BUDGET_TOKENS, `${admittedTokens} tokens`);
  assert.equal(countOf(keyed, 401), keyed.length / 2);
  for (const name of ["budget", "keys"]) {
    const { ancestors } = fieldsOf(cluster.api.get(`${OWN_API}/gatewaypolicies`, "infra", name)?.status);
    assert.match(JSON.stringify(ancestors), /"PartiallyInvalid".*set spec\.config\.store/, name);
  }
});
