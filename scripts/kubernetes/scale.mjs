/**
 * `npm run test:kubernetes -- scale [gateways]`: measures 1,000 HTTPRoutes and 100 policies on 50 Gateways: the time
 * until a change reaches the data plane, the memory of the controller, and the load on the API server while the cluster
 * is idle.
 */
import { readFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import {
  addressOf,
  apply,
  createFindings,
  freshNamespace,
  GATEWAY_API,
  openApi,
  POLICY_API,
  serviceHere,
  sleep,
  startController,
  until,
} from "./cluster.mjs";
import { httpGateway, servesVersion, versionedRoute } from "./versioned-routes.mjs";

const NAMESPACE = "gateway-scale";
const PORT = 18_081;
const ROUTES = 1_000;
const POLICIES = 100;
const GATEWAYS = 50;
const MOST_MEGABYTES = 250;
const CHANGES = 20;
const IDLE_SECONDS = 60;
const PARALLEL = 8;

export async function scale(cluster, flags) {
  const gateways = Number(flags[0] ?? GATEWAYS);
  const findings = createFindings();
  const controller = startController(cluster, "ignore");
  const api = await openApi(cluster);
  await freshNamespace(api, NAMESPACE);
  await serviceHere(cluster, api, NAMESPACE, "web");
  const numbers = Array.from({ length: ROUTES }, (_, i) => i);
  const names = Array.from({ length: gateways }, (_, i) => `edge${i}`);
  const at = (name) => ({ name, namespace: NAMESPACE });
  const routeOf = (i, version) =>
    versionedRoute(at(`r${i}`), names[i % gateways], version, { hostnames: [`r${i}.test`] });
  await each(names, (name) => apply(api, httpGateway(at(name), PORT)));
  const addresses = [];
  for (const name of names) addresses.push(await addressOf(api, `${NAMESPACE}/${name}`));
  await each(numbers, (i) => apply(api, routeOf(i, "first")));
  await each(numbers.slice(0, POLICIES), (i) => apply(api, policy(i)));
  const shows = (i, version) => servesVersion(addresses[i % gateways], PORT, version, { host: `r${i}.test` });
  for (const i of numbers.slice(-gateways)) await until("all routes", () => shows(i, "first"), 300_000);
  await until(
    "all statuses",
    async () => {
      const routes = await api.get(`${GATEWAY_API}/namespaces/${NAMESPACE}/httproutes`);
      const policies = await api.get(`${POLICY_API}/namespaces/${NAMESPACE}/gatewaypolicies`);
      return (
        routes.items.length === ROUTES &&
        routes.items.every(({ status }) => status?.parents?.length > 0) &&
        policies.items.length === POLICIES &&
        policies.items.every(({ status }) => status?.ancestors?.length > 0)
      );
    },
    300_000,
    1_000,
  );

  const times = [];
  const cpuBefore = cpuMsOf(controller.pid);
  for (let change = 0; change < CHANGES; change += 1) {
    const i = (change * 53) % ROUTES;
    await api.patch(`${GATEWAY_API}/namespaces/${NAMESPACE}/httproutes/r${i}`, routeOf(i, `change${change}`));
    times.push(await until("a change", () => shows(i, `change${change}`), 60_000, 10));
  }
  const cpuMs = Math.round((cpuMsOf(controller.pid) - cpuBefore) / CHANGES);
  times.sort((a, b) => a - b);
  const longest = times.at(-1);
  findings.tell(
    `a change reaches the data plane within 2 s (${ROUTES} routes, ${POLICIES} policies, ${gateways} Gateways)`,
    longest < 2_000,
    `median ${Math.round(times[CHANGES / 2])} ms, longest ${Math.round(longest)} ms of ${CHANGES}; ` +
      `${cpuMs} ms of CPU in the controller for each; load ${loadavg()[0].toFixed(1)} on ${cpus().length} CPUs`,
  );
  const { rss, peak } = memoryOf(controller.pid);
  findings.tell(
    `the controller uses less than ${MOST_MEGABYTES} MB`,
    rss < MOST_MEGABYTES,
    `${rss} MB now, ${peak} MB at most`,
  );

  await sleep(5_000);
  const before = await versions(api);
  await sleep(IDLE_SECONDS * 1000);
  const after = await versions(api);
  const changed = [...after].filter(([name, version]) => before.get(name) !== version).map(([name]) => name);
  findings.tell(
    `an idle cluster has no writes in ${IDLE_SECONDS} s, besides the Lease`,
    changed.length === 0,
    changed.length === 0 ? `${after.size} objects looked at` : changed.slice(0, 5).join(", "),
  );
  await api.call("DELETE", `/api/v1/namespaces/${NAMESPACE}`);
  return findings.exitCode();
}

/** Object → version: every write changes it, also one that changes nothing else. */
async function versions(api) {
  const found = new Map();
  for (const path of [
    `${GATEWAY_API}/gatewayclasses`,
    `${GATEWAY_API}/gateways`,
    `${GATEWAY_API}/httproutes`,
    `${POLICY_API}/gatewaypolicies`,
    `${POLICY_API}/backends`,
    "/apis/apps/v1/deployments",
    "/api/v1/services",
    "/api/v1/serviceaccounts",
    "/api/v1/secrets",
    "/apis/policy/v1/poddisruptionbudgets",
  ])
    for (const { metadata } of (await api.get(path)).items)
      found.set(`${path} ${metadata.namespace ?? ""}/${metadata.name}`, metadata.resourceVersion);
  return found;
}

async function each(list, work) {
  const queue = [...list];
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await work(next);
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
}

/** In units of 10 ms, as Linux counts. */
function cpuMsOf(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** In MB, as reported by the kernel. */
function memoryOf(pid) {
  const text = readFileSync(`/proc/${pid}/status`, "utf8");
  const megabytes = (field) => Math.round((Number(new RegExp(`${field}:\\s+(\\d+)`).exec(text)?.[1]) * 1024) / 1e6);
  return { rss: megabytes("VmRSS"), peak: megabytes("VmHWM") };
}

function policy(i) {
  return {
    apiVersion: "policy.gateway.internal/v1alpha1",
    kind: "GatewayPolicy",
    metadata: { name: `p${i}`, namespace: NAMESPACE },
    spec: {
      targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: `r${i}` }],
      traffic: { rateLimit: { local: [{ requests: 1_000_000, unit: "Seconds" }] } },
    },
  };
}
