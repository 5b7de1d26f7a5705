/**
 * `npm run test:kubernetes -- install [rounds] [seed]`: installs the shipped manifests as the documentation says, with
 * two controllers behind their Service, and creates nine Gateways. Each round then kills, stops, or disconnects one of
 * the controllers for a random time, while clients send requests and a route changes.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import {
  addressOf,
  apply,
  ask,
  createFindings,
  freshNamespace,
  GATEWAY_API,
  openApi,
  root,
  run,
  serviceHere,
  sleep,
  until,
} from "./cluster.mjs";
import { servesVersion, startTraffic, versionedRoute } from "./versioned-routes.mjs";

const NAMESPACE = "gateway-install";
const SYSTEM = "gateway-system";
const GATEWAYS = 9;
/** The port of the documented Gateway. */
const PORT = 80;
const PROGRAMMED_MS = 15_000;
const RECOVERED_MS = 20_000;
const EVERY_MS = 25;
const LEADER_EVERY_MS = 100;
const LONGEST_FAULT_MS = 25_000;
const STATS_PORT = 15_020;

/** Runs instead of a controller on this machine: the shipped Deployment stays as it is. */
export async function install(cluster, flags) {
  const rounds = Number(flags[0] ?? 10);
  const random = randomNumbers(Number(flags[1] ?? Date.now() % 100_000));
  const findings = createFindings();
  const api = await openApi(cluster);
  await until("two controllers", async () => (await controllers(api)).length === 2);
  await freshNamespace(api, NAMESPACE);
  await serviceHere(cluster, api, NAMESPACE, "web");
  const gateway = documentedGateway();
  const routeOf = (name, version) => versionedRoute({ name, namespace: NAMESPACE }, name, version);
  const names = Array.from({ length: GATEWAYS }, (_, i) => `edge${i}`);
  const beganMs = performance.now();
  for (const name of names) {
    await apply(api, named(gateway, name));
    await apply(api, routeOf(name, "0"));
  }
  const addresses = await Promise.all(names.map((name) => addressOf(api, `${NAMESPACE}/${name}`)));
  const programmedMs = performance.now() - beganMs;
  findings.tell(
    `${GATEWAYS} Gateways are programmed within ${PROGRAMMED_MS / 1000} s`,
    programmedMs < PROGRAMMED_MS,
    `${Math.round(programmedMs)} ms`,
  );
  for (const address of addresses) await until("the first response", () => servesVersion(address, PORT, "0"));

  const traffic = startTraffic(addresses, PORT, EVERY_MS);
  const leaders = watchLeaders(api);
  const recoveries = [];
  const kinds = faultKinds();
  for (let round = 1; round <= rounds; round += 1) {
    const kind = kinds[Math.floor(random() * kinds.length)];
    const pods = await controllers(api);
    const pod = pods[round % pods.length];
    const faultMs = Math.round(random() * LONGEST_FAULT_MS);
    const changed = names[Math.floor(random() * names.length)];
    await sleep(random() * 3_000);
    const end = FAULTS[kind](pod);
    await sleep(random() * 2_000);
    await apply(api, routeOf(changed, String(round)));
    await sleep(faultMs);
    end();
    let ms = Number.NaN;
    try {
      ms = await until(
        "the status and the change",
        async () =>
          (await isStatusRight(api, names)) &&
          (await servesVersion(addresses[names.indexOf(changed)], PORT, String(round))),
        60_000,
      );
    } catch {
      // The result below shows it.
    }
    recoveries.push(ms);
    process.stdout.write(
      `round ${round}: ${kind} ${pod.metadata.name} for ${faultMs} ms: right after ${Math.round(ms)} ms\n`,
    );
    // The next round has two controllers again.
    await until("two controllers", async () => (await controllers(api)).length === 2);
  }
  const { requests, failures } = traffic.take();
  traffic.stop();
  const { samples, most } = leaders.stop();
  findings.tell("no request failed", failures === 0, `${requests} requests, ${failures} failed`);
  const longest = Math.max(...recoveries.map((ms) => (Number.isNaN(ms) ? Number.POSITIVE_INFINITY : ms)));
  findings.tell(
    `status and configuration are right within ${RECOVERED_MS / 1000} s of each of ${rounds} faults`,
    longest < RECOVERED_MS,
    `longest ${Math.round(longest)} ms`,
  );
  findings.tell("never two leaders", most <= 1, `${samples} samples, at most ${most}`);
  await api.call("DELETE", `/api/v1/namespaces/${NAMESPACE}`);
  return findings.exitCode();
}

/** The Gateway at the beginning of docs/kubernetes.md. */
function documentedGateway() {
  const text = readFileSync(join(root, "docs/kubernetes.md"), "utf8");
  const [, yaml] = /```yaml\n([\s\S]*?)```/.exec(text);
  return parseAllDocuments(yaml)[0].toJS();
}

function named(object, name) {
  return { ...object, metadata: { ...object.metadata, name, namespace: NAMESPACE } };
}

/** Pods that run and are not being deleted. */
async function controllers(api) {
  const { items } = await api.get(
    `/api/v1/namespaces/${SYSTEM}/pods?labelSelector=app.kubernetes.io%2Fname%3Dgateway-controller`,
  );
  return items
    .filter(({ metadata, status }) => metadata.deletionTimestamp === undefined && status.phase === "Running")
    .sort((one, other) => (one.metadata.name < other.metadata.name ? -1 : 1));
}

async function isStatusRight(api, names) {
  const { items: gateways } = await api.get(`${GATEWAY_API}/namespaces/${NAMESPACE}/gateways`);
  const { items: routes } = await api.get(`${GATEWAY_API}/namespaces/${NAMESPACE}/httproutes`);
  const isTrue = (conditions, wanted, generation) =>
    conditions?.some(
      ({ type, status, observedGeneration }) =>
        type === wanted && status === "True" && observedGeneration === generation,
    );
  return (
    gateways.length === names.length &&
    gateways.every(({ metadata, status }) => isTrue(status.conditions, "Programmed", metadata.generation)) &&
    routes.every(({ metadata, status }) => isTrue(status?.parents?.[0]?.conditions, "Accepted", metadata.generation))
  );
}

/** Each fault returns the function that ends it. */
const FAULTS = {
  kill(pod) {
    signal(pod, "KILL");
    // A kubelet that restarts the container and one that does not: a new pod replaces this one.
    run(
      "kubectl",
      ["delete", "pod", "-n", SYSTEM, pod.metadata.name, "--grace-period=0", "--force", "--wait=false"],
      "pipe",
    );
    return () => undefined;
  },
  stop(pod) {
    signal(pod, "STOP");
    return () => signal(pod, "CONT");
  },
  partition(pod) {
    network(pod, "cut");
    return () => network(pod, "heal");
  },
};

function faultKinds() {
  const { KUBERNETES_POD_SIGNAL, KUBERNETES_POD_NETWORK } = process.env;
  return ["kill", ...(KUBERNETES_POD_SIGNAL ? ["stop"] : []), ...(KUBERNETES_POD_NETWORK ? ["partition"] : [])];
}

function signal(pod, name) {
  if (process.env.KUBERNETES_POD_SIGNAL) podCommand(process.env.KUBERNETES_POD_SIGNAL, pod, name);
}

function network(pod, action) {
  podCommand(process.env.KUBERNETES_POD_NETWORK, pod, action);
}

function podCommand(command, { metadata, status }, argument) {
  const { containerID = "" } = status.containerStatuses?.[0] ?? {};
  const { status: code } = spawnSync("sh", ["-c", `${command} "$@"`, "sh", argument, metadata.name, containerID], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (code !== 0) throw new Error(`${command} ${argument} ${metadata.name} failed`);
}

/** Asks all controllers at the same time whether they lead. */
function watchLeaders(api) {
  let samples = 0;
  let most = 0;
  let isOver = false;
  const loop = async () => {
    while (!isOver) {
      const pods = await controllers(api).catch(() => []);
      const answers = await Promise.all(
        pods.map(({ status }) => ask(status.podIP, STATS_PORT, "/metrics", {}, LEADER_EVERY_MS * 5)),
      );
      const leading = answers.filter((answer) => /^gateway_controller_leader 1$/m.test(answer?.body ?? "")).length;
      samples += 1;
      most = Math.max(most, leading);
      await sleep(LEADER_EVERY_MS);
    }
  };
  void loop();
  return {
    stop() {
      isOver = true;
      return { samples, most };
    },
  };
}

/** A small generator, so that a run can be repeated with its seed. */
function randomNumbers(seed) {
  process.stdout.write(`seed ${seed}\n`);
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}
