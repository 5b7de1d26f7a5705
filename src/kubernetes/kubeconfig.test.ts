import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { certificates } from "../../test/support/tls/certificates.ts";
import { type Cluster, type KubeconfigFlags, loadCluster, type PluginHost } from "./kubeconfig.ts";

const folder = mkdtempSync(join(tmpdir(), "kubeconfig-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const SERVER = "https://cluster.test:6443";
const { root, client } = certificates;
const base64 = (text: string): string => Buffer.from(text).toString("base64");
const CA = { "certificate-authority-data": base64(root) };
const CLIENT = { "client-certificate-data": base64(client.cert), "client-key-data": base64(client.key) };

function terminal(environment: Record<string, string> = {}, isInteractive = false): PluginHost & { said: string[] } {
  const said: string[] = [];
  return {
    err: (text) => void said.push(text),
    said,
    isInteractive,
    environment: { PATH: process.env.PATH, ...environment },
  };
}

function file(name: string, value: unknown): string {
  const path = join(folder, name);
  writeFileSync(path, typeof value === "string" ? value : JSON.stringify(value));
  return path;
}

interface Parts {
  readonly cluster?: object;
  readonly user?: object;
  readonly context?: object;
}

function config({ cluster, user, context }: Parts): object {
  return {
    apiVersion: "v1",
    kind: "Config",
    preferences: {},
    "current-context": "c",
    contexts: [{ name: "c", context: { cluster: "k", user: "u", ...context } }],
    clusters: [{ name: "k", cluster: { server: SERVER, ...CA, ...cluster } }],
    users: [{ name: "u", user: user ?? {} }],
  };
}

const load = (parts: Parts, flags: KubeconfigFlags = {}, seat = terminal()): Promise<Cluster> =>
  loadCluster({ kubeconfig: file("config", config(parts)), ...flags }, seat);

function plugin(name: string, script: string): string {
  chmodSync(file(name, `#!/bin/sh\n${script}\n`), 0o755);
  return `./${name}`;
}
const printing = (status: object): string =>
  `printf '%s' '${JSON.stringify({ apiVersion: "client.authentication.k8s.io/v1", kind: "ExecCredential", status })}'`;
const exec = (command: string, more: object = {}) => ({
  exec: {
    apiVersion: "client.authentication.k8s.io/v1",
    interactiveMode: "IfAvailable",
    command,
    args: null,
    env: null,
    ...more,
  },
});
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const CERT = { cert: client.cert, key: client.key };

file("token", "from-file\n");
file("ca.pem", root);
file("client.pem", client.cert);
file("client.key", client.key);

const read: { name: string; parts: Parts; headers: object; tls: object }[] = [
  { name: "certificates as data, as kind and k3s write them", parts: { user: CLIENT }, headers: {}, tls: CERT },
  {
    name: "certificates in files beside it, as minikube writes them",
    parts: {
      cluster: { "certificate-authority-data": "", "certificate-authority": "ca.pem", extensions: [{ name: "x" }] },
      user: { "client-certificate": "client.pem", "client-key": "client.key" },
    },
    headers: {},
    tls: CERT,
  },
  { name: "a token", parts: { user: { token: "t" } }, headers: bearer("t"), tls: {} },
  { name: "a token file", parts: { user: { tokenFile: "token" } }, headers: bearer("from-file"), tls: {} },
  {
    name: "a token file before a token",
    parts: { user: { token: "t", tokenFile: "token" } },
    headers: bearer("from-file"),
    tls: {},
  },
  {
    name: "a token beside a client certificate",
    parts: { user: { token: "t", ...CLIENT } },
    headers: bearer("t"),
    tls: CERT,
  },
  {
    name: "a password",
    parts: { user: { username: "a", password: "b" } },
    headers: { authorization: "Basic YTpi" },
    tls: {},
  },
  {
    name: "as whom the user acts",
    parts: { user: { token: "t", as: "jane", "as-uid": "7", "as-groups": ["dev"] } },
    headers: { ...bearer("t"), "impersonate-user": "jane", "impersonate-uid": "7", "impersonate-group": "dev" },
    tls: {},
  },
  {
    name: "a plugin's token",
    parts: { user: exec(plugin("token.sh", printing({ token: "p" }))) },
    headers: bearer("p"),
    tls: {},
  },
  {
    name: "a plugin's token and certificate",
    parts: {
      user: exec(
        plugin("both.sh", printing({ token: "p", clientCertificateData: client.cert, clientKeyData: client.key })),
      ),
    },
    headers: bearer("p"),
    tls: CERT,
  },
  {
    name: "a token before a plugin",
    parts: { user: { token: "t", ...exec("./never.sh") } },
    headers: bearer("t"),
    tls: {},
  },
  { name: "a context without a user", parts: { context: { user: "" } }, headers: {}, tls: {} },
];
for (const { name, parts, headers, tls } of read) {
  test(`reads ${name}`, async () => {
    const cluster = await load(parts);
    assert.deepEqual(cluster.headers, headers);
    assert.deepEqual(cluster.tls, { ca: root, ...tls });
  });
}

const refused: { name: string; parts: Parts; says: RegExp }[] = [
  { name: "a context without a cluster", parts: { context: { cluster: "" } }, says: /context c .* has no cluster/ },
  { name: "an unknown cluster", parts: { context: { cluster: "x" } }, says: /no cluster named x: it has k$/ },
  { name: "an unknown user", parts: { context: { user: "x" } }, says: /no user named x: it has u$/ },
  { name: "no server", parts: { cluster: { server: "" } }, says: /cluster k .* has no server/ },
  {
    name: "a server without a scheme",
    parts: { cluster: { server: "10.0.0.1:6443" } },
    says: /10\.0\.0\.1:6443 is not an https/,
  },
  { name: "a proxy", parts: { cluster: { "proxy-url": "socks5://p:1" } }, says: /proxy-url, which gwctl does not use/ },
  {
    name: "an authority that is not checked",
    parts: { cluster: { "insecure-skip-tls-verify": true } },
    says: /remove one/,
  },
  {
    name: "an authority that is no PEM",
    parts: { cluster: { "certificate-authority-data": "YWJj" } },
    says: /certificate-authority-data of cluster k .* not in PEM form/,
  },
  {
    name: "a file that is not there",
    parts: { user: { "client-certificate": "none.pem", "client-key": "client.key" } },
    says: /cannot read none\.pem of user u/,
  },
  {
    name: "a certificate without its key",
    parts: { user: { "client-certificate": "client.pem" } },
    says: /needs client-key or client-key-data/,
  },
  {
    name: "a key without its certificate",
    parts: { user: { "client-key": "client.key" } },
    says: /needs client-certificate or/,
  },
  { name: "a token and a password", parts: { user: { token: "t", username: "a" } }, says: /a token and a password/ },
  {
    name: "a built-in provider",
    parts: { user: { "auth-provider": { name: "gcp" } } },
    says: /auth-provider gcp is not supported; use a credential plugin/,
  },
  { name: "several groups", parts: { user: { as: "a", "as-groups": ["b", "c"] } }, says: /one group/ },
  { name: "a plugin without a command", parts: { user: { exec: {} } }, says: /has no command/ },
  {
    name: "a plugin of an old version",
    parts: { user: exec("x", { apiVersion: "client.authentication.k8s.io/v1alpha1" }) },
    says: /apiVersion client\.authentication\.k8s\.io\/v1alpha1: expected/,
  },
  {
    name: "a plugin that is not installed",
    parts: { user: exec("no-such-plugin", { installHint: "Get it\nfrom the shop" }) },
    says: /no-such-plugin is not installed: Get it from the shop$/,
  },
  {
    name: "a plugin that must ask",
    parts: { user: exec("x", { interactiveMode: "Always" }) },
    says: /run gwctl in a terminal/,
  },
  {
    name: "a plugin that fails",
    parts: { user: exec(plugin("fails.sh", "exit 3")) },
    says: /fails\.sh failed with exit code 3/,
  },
  {
    name: "a plugin that prints no credential",
    parts: { user: exec(plugin("text.sh", "echo hello")) },
    says: /did not print an ExecCredential/,
  },
  {
    name: "a plugin that answers in another version",
    parts: { user: exec(plugin("other.sh", `echo '{"apiVersion":"x/v2"}'`)) },
    says: /answers with x\/v2/,
  },
  {
    name: "a plugin that gives nothing",
    parts: { user: exec(plugin("empty.sh", printing({}))) },
    says: /neither a token nor a certificate/,
  },
];
for (const { name, parts, says } of refused) {
  test(`refuses ${name} by name`, async () => {
    await assert.rejects(load(parts), (error: Error) => {
      assert.match(error.message, says);
      assert.equal(error.message.includes("\n"), false);
      return error.name === "KubeconfigError";
    });
  });
}

test("the namespace comes from the flag, else from the context, else it is the default one", async () => {
  assert.equal((await load({})).namespace, "default");
  assert.equal((await load({ context: { namespace: "edge" } })).namespace, "edge");
  assert.equal((await load({ context: { namespace: "edge" } }, { namespace: "other" })).namespace, "other");
});

test("a server below a path keeps it, as management servers need", async () => {
  const { server } = await load({ cluster: { server: "https://manager.test/k8s/clusters/c-1/" } });
  assert.equal(server, "https://manager.test/k8s/clusters/c-1");
});

test("nothing secret is sent in the clear, except on this machine", async () => {
  const user = { token: "t" };
  assert.deepEqual((await load({ user, cluster: { server: "http://cluster.test" } })).headers, {});
  assert.deepEqual((await load({ user, cluster: { server: "http://127.0.0.1:8001" } })).headers, bearer("t"));
});

test("the files of KUBECONFIG are merged: what comes first wins, what is not there is left out", async () => {
  const first = file("first", { "current-context": "c", users: [{ name: "u", user: { token: "first" } }] });
  const second = file("second", config({ user: { token: "second" }, context: { namespace: "two" } }));
  const seat = terminal({ KUBECONFIG: [join(folder, "absent"), first, second].join(":") });
  const cluster = await loadCluster({}, seat);
  assert.deepEqual(cluster.headers, bearer("first"));
  assert.equal(cluster.namespace, "two");
  assert.equal(cluster.server, SERVER);
});

const broken: [name: string, source: string, says: RegExp][] = [
  ["is empty", "", /no kubeconfig at .*: use --kubeconfig/],
  ["is a list", "[]", /is not a kubeconfig/],
  ["is not YAML", "a: [", /is not YAML/],
  ["has no context", "{}", /no current-context: use --context/],
];
for (const [name, source, says] of broken) {
  test(`a kubeconfig that ${name} is said to be so`, async () => {
    await assert.rejects(loadCluster({ kubeconfig: file("broken", source) }, terminal()), says);
  });
}

test("a plugin learns of the cluster where it wants to, and what it says is heard while it runs", async () => {
  const info = join(folder, "info.json");
  const command = plugin(
    "info.sh",
    `echo "open the door" >&2; printf '%s' "$KUBERNETES_EXEC_INFO" > '${info}'; ${printing({ token: "p" })}`,
  );
  const extensions = [{ name: "client.authentication.k8s.io/exec", extension: { audience: "x" } }];
  const seat = terminal();
  await load({ cluster: { extensions }, user: exec(command, { provideClusterInfo: true }) }, {}, seat);
  assert.deepEqual(JSON.parse(readFileSync(info, "utf8")), {
    kind: "ExecCredential",
    apiVersion: "client.authentication.k8s.io/v1",
    spec: {
      cluster: { server: SERVER, "certificate-authority-data": base64(root), config: { audience: "x" } },
      interactive: false,
    },
  });
  assert.equal(seat.said.join(""), "open the door\n");
  await load({ user: exec(command) });
  assert.deepEqual((JSON.parse(readFileSync(info, "utf8")) as { spec: unknown }).spec, { interactive: false });
});
