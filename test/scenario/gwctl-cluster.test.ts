import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { type StandInApi, startKubernetesApi } from "../support/kubernetes-api.ts";

const TOKEN = "cluster-token";
let api: StandInApi;
let backend: TestBackend;
let gateway: TestGateway;
let folder: string;
let kubeconfig: string;
let adminPort: string;

before(async () => {
  backend = await startBackend();
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes: [{ name: inside, backends: [{ host: "${backend.host}" }] }]
`);
  adminPort = new URL(gateway.adminUrl).port;
  api = await startKubernetesApi({
    token: TOKEN,
    namespace: "edge",
    pods: [
      { name: "front-b", gateway: "front", phase: "Running" },
      { name: "front-a", gateway: "front", phase: "Running" },
      { name: "front-0", gateway: "front", phase: "Pending" },
      { name: "idle-0", gateway: "idle", phase: "Pending" },
    ],
  });
  folder = mkdtempSync(join(tmpdir(), "gwctl-cluster-"));
  kubeconfig = join(folder, "config");
  writeConfig({ token: TOKEN });
});
after(async () => {
  await gateway?.close();
  await backend?.close();
  await api?.close();
  rmSync(folder, { recursive: true, force: true });
});

function writeConfig(user: object): void {
  writeFileSync(
    kubeconfig,
    JSON.stringify({
      "current-context": "here",
      contexts: [{ name: "here", context: { cluster: "c", user: "u", namespace: "edge" } }],
      clusters: [{ name: "c", cluster: { server: api.url } }],
      users: [{ name: "u", user }],
    }),
  );
}

const inCluster = (args: readonly string[], environment: Record<string, string> = { KUBECONFIG: kubeconfig }) =>
  gwctl([...args, "-p", adminPort], { environment });

test("gateway/<name> finds the first running pod and reaches its admin interface through a port-forward", async () => {
  const { code, stdout, stderr } = await inCluster(["proxy", "config", "routes", "gateway/front"]);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^inside /m);
  assert.ok(
    api.seen.some((line) => line.startsWith("UPGRADE /api/v1/namespaces/edge/pods/front-a/portforward?ports=")),
  );
});

test("pod/<name> names the pod itself", async () => {
  assert.equal((await inCluster(["proxy", "log", "pod/front-b"])).stdout, "current log level is info\n");
});

test("inject mode reaches the pod's listener through a port of its own", async () => {
  const { code, stdout, stderr } = await gwctl(
    [
      "proxy",
      "trace",
      "gateway/front",
      "--raw",
      "-p",
      adminPort,
      "--port",
      String(gateway.port()),
      "--",
      "http://in.cluster/x",
      "-d",
      "a".repeat(20_000),
    ],
    { environment: { KUBECONFIG: kubeconfig } },
  );
  assert.equal(code, 0, stderr);
  assert.match(stdout, /"host":"in\.cluster"/);
  assert.equal(backend.received.at(-1)?.body.length, 20_000);
});

test("a credential plugin of the kubeconfig is asked for a token", async () => {
  const plugin = join(folder, "plugin.sh");
  writeFileSync(plugin, `#!/bin/sh\necho '{"kind":"ExecCredential","status":{"token":"'"$PART_ONE"'-token"}}'\n`);
  chmodSync(plugin, 0o755);
  writeConfig({
    exec: {
      apiVersion: "client.authentication.k8s.io/v1",
      command: "./plugin.sh",
      env: [{ name: "PART_ONE", value: "cluster" }],
    },
  });
  const { code, stderr } = await inCluster(["proxy", "log", "pod/front-a"]);
  writeConfig({ token: TOKEN });
  assert.equal(code, 0, stderr);
});

const failures = [
  { name: "no such gateway", args: ["gateway/none"], says: /no running pod of gateway none in namespace edge/ },
  { name: "no running pod", args: ["gateway/idle"], says: /no running pod of gateway idle/ },
  { name: "another namespace", args: ["gateway/front", "-n", "other"], says: /the cluster answered 404: not found/ },
  { name: "an unknown context", args: ["gateway/front", "--context", "x"], says: /no context named x/ },
  {
    name: "a kubeconfig that is not there",
    args: ["gateway/front", "-k", "/nonexistent/config"],
    says: /cannot read the kubeconfig/,
  },
];
for (const { name, args, says } of failures) {
  test(`a cluster target fails in one line: ${name}`, async () => {
    const { code, stderr } = await inCluster(["proxy", "log", ...args]);
    assert.equal(code, 1);
    assert.match(stderr, says);
    assert.equal(stderr.trim().split("\n").length, 1);
  });
}

test("credentials that the cluster refuses are said to be refused", async () => {
  writeConfig({ token: "wrong" });
  const { code, stderr } = await inCluster(["proxy", "log", "gateway/front"]);
  writeConfig({ token: TOKEN });
  assert.equal(code, 1);
  assert.match(stderr, /the cluster answered 401: Unauthorized/);
});

test("a name that is none is wrong usage", async () => {
  assert.equal((await inCluster(["proxy", "log", "service/front"])).code, 2);
});
