import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { createServer as createTlsServer } from "node:tls";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { type StandInApi, startKubernetesApi } from "../support/kubernetes-api.ts";
import { certificates } from "../support/tls/certificates.ts";

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
    gateways: [
      {
        metadata: { name: "front", namespace: "edge" },
        spec: { gatewayClassName: "gateway" },
        status: {
          addresses: [{ value: "10.0.0.1" }],
          conditions: [{ type: "Programmed", status: "False", reason: "Pending" }],
          listeners: [{ name: "http", attachedRoutes: 3 }],
        },
      },
    ],
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

function writeConfig(user: object, cluster: object = { server: api.url }): void {
  writeFileSync(
    kubeconfig,
    JSON.stringify({
      "current-context": "here",
      contexts: [{ name: "here", context: { cluster: "c", user: "u", namespace: "edge" } }],
      clusters: [{ name: "c", cluster }],
      users: [{ name: "u", user }],
    }),
  );
}

const inCluster = (args: readonly string[], environment: Record<string, string> = { KUBECONFIG: kubeconfig }) =>
  gwctl([...args, "-p", adminPort], { environment });

test("gateway/<name> finds the first running pod and reaches its admin interface through a port-forward [S4.4-2]", async () => {
  const { code, stdout, stderr } = await inCluster(["proxy", "config", "routes", "gateway/front"]);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^inside /m);
  assert.ok(
    api.seen.some((line) => line.startsWith("UPGRADE /api/v1/namespaces/edge/pods/front-a/portforward?ports=")),
  );
});

test("gateway list shows where the Gateways are and whether they are served", async () => {
  const { code, stdout, stderr } = await gwctl(["gateway", "list"], { environment: { KUBECONFIG: kubeconfig } });
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^NAMESPACE +NAME +CLASS +ADDRESS +PROGRAMMED +ROUTES$/m);
  assert.match(stdout, /^edge +front +gateway +10\.0\.0\.1 +False \(Pending\) +http: 3$/m);
  const other = await gwctl(["gateway", "list", "-A"], { environment: { KUBECONFIG: kubeconfig } });
  assert.match(other.stderr, /the cluster has no Gateway API/);
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

/** The API server behind TLS, for those with a certificate of ours. */
async function tlsFront(t: TestContext): Promise<number> {
  const server = createTlsServer(
    { ...certificates.server, ca: certificates.root, requestCert: true, rejectUnauthorized: true },
    (client) => {
      const upstream = connect(Number(new URL(api.url).port), "127.0.0.1");
      client.on("error", () => upstream.destroy());
      upstream.on("error", () => client.destroy());
      client.on("close", () => upstream.destroy());
      client.pipe(upstream).pipe(client);
    },
  );
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const clientCertificate = {
  "client-certificate-data": base64(certificates.client.cert),
  "client-key-data": base64(certificates.client.key),
};

test("over TLS: the cluster's authority, its name, and a client certificate beside the token", async (t) => {
  const port = await tlsFront(t);
  const cluster = { server: `https://127.0.0.1:${port}`, "certificate-authority-data": base64(certificates.root) };
  const tries: [user: object, cluster: object, code: number, says: RegExp][] = [
    [{ token: TOKEN, ...clientCertificate }, cluster, 0, /^$/],
    [{ token: TOKEN, ...clientCertificate }, { ...cluster, "tls-server-name": "backend.test" }, 0, /^$/],
    [{ token: TOKEN, ...clientCertificate }, { server: cluster.server, "insecure-skip-tls-verify": true }, 0, /^$/],
    [{ token: TOKEN, ...clientCertificate }, { server: cluster.server }, 1, /cannot reach the cluster .*certificate/],
    [{ token: TOKEN, ...clientCertificate }, { ...cluster, "tls-server-name": "other.test" }, 1, /other\.test/],
    [{ token: TOKEN }, cluster, 1, /cannot reach the cluster/],
    [clientCertificate, cluster, 1, /the cluster responded with 401: Unauthorized/],
  ];
  for (const [user, entry, code, says] of tries) {
    writeConfig(user, entry);
    const run = await inCluster(["proxy", "log", "gateway/front"]);
    assert.match(run.stderr, says);
    assert.equal(run.code, code, run.stderr);
  }
  writeConfig({ token: TOKEN });
});

test("a port-forward that the cluster refuses is explained in its words", async () => {
  writeConfig({ token: "wrong" });
  const { code, stderr } = await inCluster(["proxy", "log", "pod/front-a"]);
  writeConfig({ token: TOKEN });
  assert.equal(code, 1);
  assert.match(
    stderr,
    /^gwctl: cannot forward to pod front-a in edge: the cluster responded with 401: Unauthorized\n$/,
  );
});

test("a port on which nobody listens in the pod is named", async () => {
  const { code, stderr } = await gwctl(["proxy", "log", "pod/front-a", "-p", "1"], {
    environment: { KUBECONFIG: kubeconfig },
  });
  assert.equal(code, 1);
  assert.match(stderr, /^gwctl: pod front-a, port 1: [^\n]*ECONNREFUSED[^\n]*\n$/);
});

const failures = [
  { name: "no such gateway", args: ["gateway/none"], says: /no running pod of gateway none in namespace edge/ },
  { name: "no running pod", args: ["gateway/idle"], says: /no running pod of gateway idle/ },
  {
    name: "another namespace",
    args: ["gateway/front", "-n", "other"],
    says: /the cluster responded with 404: not found/,
  },
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
  assert.match(stderr, /the cluster responded with 401: Unauthorized/);
});

test("a name that is none is wrong usage", async () => {
  assert.equal((await inCluster(["proxy", "log", "service/front"])).code, 2);
});
