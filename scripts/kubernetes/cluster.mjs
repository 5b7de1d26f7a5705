/**
 * Shared by the runs of `npm run test:kubernetes`: the cluster that the variables name, a controller on this machine
 * with the permissions of deploy/kubernetes, requests to the API server through `kubectl proxy`, and a list of results.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const gatewayProgram = join(root, "dist/gateway.js");

export const GATEWAY_API = "/apis/gateway.networking.k8s.io/v1";
export const POLICY_API = "/apis/policy.gateway.internal/v1alpha1";
const PATIENCE_MS = 120_000;

/**
 * Calls `body` with the cluster and ends everything that was started, whatever happens. `isInstalled` keeps the shipped
 * controllers running in the cluster; otherwise `body` starts one on this machine.
 */
export async function withCluster(body, isInstalled = false) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-kubernetes-"));
  const { KUBERNETES_UP, KUBERNETES_DOWN } = process.env;
  const endings = [() => rmSync(folder, { recursive: true, force: true })];
  if (KUBERNETES_DOWN) endings.unshift(() => spawnSync("sh", ["-c", KUBERNETES_DOWN], { stdio: "inherit" }));
  if (!existsSync(gatewayProgram)) fail("dist/gateway.js is missing: run `npm run build` first");
  try {
    if (KUBERNETES_UP) run("sh", ["-c", KUBERNETES_UP]);
    run("kubectl", ["apply", "--server-side", "-f", join(root, "kubernetes")], "pipe");
    run("kubectl", ["apply", "-f", join(root, "deploy/kubernetes/controller.yaml")], "pipe");
    const replicas = isInstalled ? 2 : 0;
    run(
      "kubectl",
      ["scale", "deployment", "-n", "gateway-system", "gateway-controller", `--replicas=${replicas}`],
      "pipe",
    );
    return await body({ folder, atEnd: (ending) => endings.unshift(ending) });
  } finally {
    for (const ending of endings) await ending();
  }
}

/** With a token of its own ServiceAccount, so that missing rights show. */
export function startController({ folder, atEnd }, output = "inherit") {
  const { GATEWAY_CONTROLLER_URL, GATEWAY_IMAGE } = process.env;
  const token = join(folder, "token");
  const account = ["create", "token", "gateway-controller", "-n", "gateway-system", "--duration=8h"];
  writeFileSync(token, run("kubectl", account, "pipe"), { mode: 0o600 });
  const config = JSON.parse(run("kubectl", ["config", "view", "--raw", "--minify", "--flatten", "-o", "json"], "pipe"));
  config.users = [{ name: "controller", user: { tokenFile: token } }];
  config.contexts[0].context.user = "controller";
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(kubeconfig, JSON.stringify(config), { mode: 0o600 });
  const { hostname, port } = new URL(GATEWAY_CONTROLLER_URL);
  const flags = ["--kubeconfig", kubeconfig, "--namespace", "gateway-system", "--image", GATEWAY_IMAGE];
  const addresses = ["--url", GATEWAY_CONTROLLER_URL, "--listen", `${hostname}:${port}`, "--stats", "127.0.0.1:0"];
  const deployed = ["get", "deployment", "gateway-controller", "-n", "gateway-system", "-o", "json"];
  const { env = [] } = JSON.parse(run("kubectl", deployed, "pipe")).spec.template.spec.containers[0];
  const variables = Object.fromEntries(env.map(({ name, value }) => [name, value]));
  const child = spawn(process.execPath, [gatewayProgram, "controller", ...flags, ...addresses], {
    stdio: ["ignore", output, output],
    env: { ...process.env, ...variables },
  });
  atEnd(() => child.kill("SIGKILL"));
  return child;
}

/** A data plane on this machine, which follows the controller as one in a pod does. */
export function startDataPlane({ folder, atEnd }, gateway, certificate) {
  const [namespace, name] = gateway.split("/");
  const tokenFile = join(folder, "data-plane-token");
  const account = ["create", "token", `${name}-gateway`, "-n", namespace, "--audience=gateway-controller"];
  writeFileSync(tokenFile, run("kubectl", account, "pipe"), { mode: 0o600 });
  const flags = ["--from", process.env.GATEWAY_CONTROLLER_URL, "--gateway", gateway];
  // Another gateway on this machine may use the default admin and stats ports.
  const configFile = join(folder, "data-plane.yaml");
  writeFileSync(configFile, 'config: { adminAddr: "off", logging: { format: json } }\n');
  const files = ["-f", configFile, "--token-file", tokenFile, "--state-folder", join(folder, "state")];
  const child = spawn(process.execPath, [gatewayProgram, ...flags, ...files], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, GATEWAY_CONTROLLER_CA: certificate, GATEWAY_INSTANCE: "on-this-machine" },
  });
  atEnd(() => child.kill("SIGKILL"));
  return child;
}

/** A client of the API server; `kubeconfig` names another one. */
export async function openApi({ atEnd }, kubeconfig) {
  const env = kubeconfig === undefined ? process.env : { ...process.env, KUBECONFIG: kubeconfig };
  const proxy = spawn("kubectl", ["proxy", "--port=0"], { stdio: ["ignore", "pipe", "ignore"], env });
  atEnd(() => proxy.kill("SIGKILL"));
  const base = await new Promise((resolve, reject) => {
    proxy.on("exit", () => reject(new Error("kubectl proxy ended")));
    proxy.stdout.on("data", (chunk) => {
      const address = /127\.0\.0\.1:\d+/.exec(String(chunk))?.[0];
      if (address) resolve(`http://${address}`);
    });
  });
  /** Returns status and body; `user` impersonates another user. */
  const call = async (method, path, body, user) => {
    const isPatch = method === "PATCH";
    const answer = await fetch(`${base}${path}`, {
      method,
      headers: {
        "content-type": isPatch ? "application/merge-patch+json" : "application/json",
        ...(user === undefined ? {} : { "impersonate-user": user }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(30_000),
    });
    const text = await answer.text();
    let value;
    try {
      value = JSON.parse(text);
    } catch {
      value = text;
    }
    return { status: answer.status, value };
  };
  return {
    call,
    get: async (path) => expectOk(await call("GET", path), path),
    patch: async (path, body) => expectOk(await call("PATCH", path, body), path),
    /** Creates the object, or replaces an existing one. */
    async apply(object, user) {
      const path = pathOf(object);
      const made = await call("POST", path, object, user);
      if (made.status !== 409) return made;
      const { value } = await call("GET", `${path}/${object.metadata.name}`);
      const { resourceVersion } = value.metadata;
      const next = { ...object, metadata: { ...object.metadata, resourceVersion } };
      return call("PUT", `${path}/${object.metadata.name}`, next, user);
    },
    async isReady() {
      try {
        return (await call("GET", "/readyz")).status === 200;
      } catch {
        return false;
      }
    },
  };
}

function expectOk({ status, value }, path) {
  if (status >= 300) throw new Error(`${path}: ${status} ${value?.message ?? ""}`);
  return value;
}

const PLURALS = {
  Gateway: "gateways",
  HTTPRoute: "httproutes",
  ReferenceGrant: "referencegrants",
  GatewayPolicy: "gatewaypolicies",
  GatewayParameters: "gatewayparameters",
  EndpointSlice: "endpointslices",
  Role: "roles",
  RoleBinding: "rolebindings",
};

export function pathOf({ apiVersion, kind, metadata }) {
  const plural = PLURALS[kind] ?? `${kind.toLowerCase()}s`;
  const within = metadata.namespace === undefined ? "" : `/namespaces/${metadata.namespace}`;
  return `/${apiVersion.includes("/") ? "apis" : "api"}/${apiVersion}${within}/${plural}`;
}

/** A new, empty namespace: what an earlier run left is removed first. */
export async function freshNamespace(api, name, labels = {}) {
  await api.call("DELETE", `/api/v1/namespaces/${name}`);
  await until(
    `namespace ${name} to go`,
    async () => (await api.call("GET", `/api/v1/namespaces/${name}`)).status === 404,
  );
  await apply(api, { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } });
}

export async function apply(api, object) {
  const { status, value } = await api.apply(object);
  if (status >= 300) throw new Error(`${object.kind} ${object.metadata.name}: ${status} ${value?.message ?? ""}`);
  return value;
}

/**
 * Exposes an HTTP server on this machine as a Service of the cluster. It responds with its name and the received
 * request.
 */
export async function serviceHere({ atEnd }, api, namespace, name) {
  const { hostname } = new URL(process.env.GATEWAY_CONTROLLER_URL);
  const received = [];
  const server = createServer((request, response) => {
    received.push(JSON.stringify([request.url, request.headers]));
    request.resume();
    response.end(JSON.stringify({ service: `${namespace}/${name}`, headers: request.headers }));
  });
  await new Promise((resolve) => server.listen(0, hostname, resolve));
  atEnd(() => server.close());
  const { port } = server.address();
  const metadata = { name, namespace };
  await apply(api, { apiVersion: "v1", kind: "Service", metadata, spec: { ports: [{ port: 80 }] } });
  await apply(api, {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: `${name}-here`, namespace, labels: { "kubernetes.io/service-name": name } },
    addressType: "IPv4",
    ports: [{ port, protocol: "TCP" }],
    endpoints: [{ addresses: [hostname], conditions: { ready: true } }],
  });
  return { port, received };
}

/** Where a Gateway can be reached, once its data planes serve. */
export async function addressOf(api, gateway) {
  const [namespace, name] = gateway.split("/");
  let address;
  await until(`Gateway ${gateway} to be programmed`, async () => {
    const { status } = await api.get(`${GATEWAY_API}/namespaces/${namespace}/gateways/${name}`);
    address = status?.addresses?.[0]?.value;
    return address && status.conditions.some(({ type, status: is }) => type === "Programmed" && is === "True");
  });
  return address;
}

/** Sends one request on its own connection; returns undefined if there was no response. */
export function ask(host, port, path, headers = {}, timeoutMs = 5_000) {
  return new Promise((resolve) => {
    const request = httpRequest({ host, port, path, headers, agent: false, timeout: timeoutMs }, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("error", () => resolve(undefined));
      response.on("end", () =>
        resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks).toString() }),
      );
    });
    request.on("timeout", () => request.destroy());
    request.on("error", () => resolve(undefined));
    request.end();
  });
}

/** Looks until it holds; the milliseconds that it took. */
export async function until(what, holds, patienceMs = PATIENCE_MS, everyMs = 50) {
  const beganMs = performance.now();
  while (!(await holds())) {
    if (performance.now() - beganMs > patienceMs) throw new Error(`waited ${patienceMs / 1000} s in vain for ${what}`);
    await sleep(everyMs);
  }
  return performance.now() - beganMs;
}

/** Waits like `until`, but not longer than the process runs. */
export function untilBy(child, what, holds) {
  return until(what, () => {
    const { exitCode, signalCode } = child;
    if (exitCode !== null || signalCode !== null)
      throw new Error(`the process for ${what} ended with ${signalCode ?? exitCode}`);
    return holds();
  });
}

/** A port that no process on this machine uses. */
export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Prints the results, one line each; the exit code is 1 if a check failed. */
export function createFindings() {
  const lines = [];
  return {
    tell(what, isTrue, figure = "") {
      lines.push({ what, isTrue, figure });
      process.stdout.write(`${isTrue ? "ok    " : "FAILED"} ${what}${figure === "" ? "" : `: ${figure}`}\n`);
    },
    exitCode: () => (lines.length > 0 && lines.every(({ isTrue }) => isTrue) ? 0 : 1),
  };
}

export function run(command, args, output = "inherit") {
  const { status, stdout, error } = spawnSync(command, args, {
    stdio: ["ignore", output, "inherit"],
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} failed${error ? `: ${error.message}` : ""}`);
  return stdout ?? "";
}

export function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

/** The certificate that data planes use to verify the controller. */
export async function controllerCertificate(api, gateway) {
  const [namespace, name] = gateway.split("/");
  const { spec } = await api.get(`/apis/apps/v1/namespaces/${namespace}/deployments/${name}-gateway`);
  return spec.template.spec.containers[0].env.find(({ name: variable }) => variable === "GATEWAY_CONTROLLER_CA").value;
}

export function packageVersion() {
  return JSON.parse(readFileSync(join(root, "package.json"), "utf8")).version;
}
