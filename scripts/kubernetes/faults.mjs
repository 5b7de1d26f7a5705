/**
 * `npm run test:kubernetes -- faults`: makes the API server unavailable for two minutes, kills the controller, and
 * restarts a data plane without a controller. The run fails if any request fails.
 */
import { spawn, spawnSync } from "node:child_process";
import {
  addressOf,
  apply,
  controllerCertificate,
  createFindings,
  freePort,
  freshNamespace,
  GATEWAY_API,
  openApi,
  serviceHere,
  sleep,
  startController,
  startDataPlane,
  until,
  untilBy,
} from "./cluster.mjs";
import { httpGateway, servesVersion, startTraffic, versionedRoute } from "./versioned-routes.mjs";

const NAMESPACE = "gateway-faults";
const PORT = 18_080;
/** The Gateway whose data plane also runs on this machine. */
const LOCAL = "local";
const LOCAL_VERSION = "local";
const ROUTE = `${GATEWAY_API}/namespaces/${NAMESPACE}/httproutes/web`;
const EVERY_MS = 20;
const route = (version) => versionedRoute({ name: "web", namespace: NAMESPACE }, "edge", version);

export async function faults(cluster, flags) {
  const awaySeconds = Number(flags[0] ?? 120);
  const { KUBERNETES_API_STOP, KUBERNETES_API_START, KUBECONFIG_OTHER } = process.env;
  const findings = createFindings();
  let controller = startController(cluster, "ignore");
  const api = await openApi(cluster);
  await freshNamespace(api, NAMESPACE);
  await serviceHere(cluster, api, NAMESPACE, "web");
  await apply(api, httpGateway({ name: "edge", namespace: NAMESPACE }, PORT));
  await apply(api, route("1"));
  const address = await addressOf(api, `${NAMESPACE}/edge`);
  await until("the first answer", () => servesVersion(address, PORT, "1"));
  const traffic = startTraffic([address], PORT, EVERY_MS);

  if (KUBERNETES_API_STOP && KUBERNETES_API_START) {
    const before = traffic.take();
    shell(KUBERNETES_API_STOP);
    await until("the API server to be away", async () => !(await api.isReady()));
    const changing = KUBECONFIG_OTHER ? await openApi(cluster, KUBECONFIG_OTHER) : undefined;
    await sleep((awaySeconds * 1000) / 2);
    await changing?.patch(ROUTE, route("2"));
    await sleep((awaySeconds * 1000) / 2);
    // The API server is back when it responds, not when the command ends.
    const starting = spawn("sh", ["-c", KUBERNETES_API_START], { stdio: "inherit" });
    await until("the API server to answer", api.isReady, 120_000, 20);
    if (!changing) await api.patch(ROUTE, route("2"));
    const ms = await until("the change to arrive", () => servesVersion(address, PORT, "2"));
    await until("the command to end", () => starting.exitCode !== null);
    const { requests, failures } = traffic.take();
    findings.tell(
      `traffic while the API server was away for ${awaySeconds} s`,
      failures === 0 && before.failures === 0,
      `${requests} requests, ${failures} failed`,
    );
    findings.tell(
      changing ? "a change made meanwhile arrives within 5 s of its return" : "a change after its return arrives",
      ms < 5_000,
      `${Math.round(ms)} ms`,
    );
  } else process.stdout.write("KUBERNETES_API_STOP and KUBERNETES_API_START are not set: the API server stays\n");

  traffic.take();
  controller.kill("SIGKILL");
  await sleep(30_000);
  const without = traffic.take();
  findings.tell(
    "traffic for 30 s without a controller",
    without.failures === 0,
    `${without.requests} requests, ${without.failures} failed`,
  );
  controller = startController(cluster, "ignore");
  await api.patch(ROUTE, route("3"));
  const returnMs = await until("the change to arrive", () => servesVersion(address, PORT, "3"));
  findings.tell("a controller that was killed takes over again", returnMs < 30_000, `${Math.round(returnMs)} ms`);
  findings.tell("traffic meanwhile", traffic.take().failures === 0);

  const localPort = await freePort();
  const certificate = await deployHeadless(api, localPort);
  const first = startDataPlane(cluster, `${NAMESPACE}/${LOCAL}`, certificate);
  await untilBy(first, "a data plane on this machine", () => servesVersion("127.0.0.1", localPort, LOCAL_VERSION));
  controller.kill("SIGKILL");
  first.kill("SIGKILL");
  await until("the data plane to end", () => first.exitCode !== null || first.signalCode !== null);
  const second = startDataPlane(cluster, `${NAMESPACE}/${LOCAL}`, certificate);
  const restartMs = await untilBy(second, "the restarted data plane", () =>
    servesVersion("127.0.0.1", localPort, LOCAL_VERSION),
  );
  findings.tell(
    "a data plane that restarts without a controller serves the last good snapshot",
    true,
    `after ${Math.round(restartMs)} ms`,
  );
  traffic.stop();
  return findings.exitCode();
}

/**
 * Deploys a Gateway with a headless Service and returns the certificate for its data planes. With another Service, a
 * proxy on this machine may already listen on the port.
 */
async function deployHeadless(api, port) {
  const metadata = { name: LOCAL, namespace: NAMESPACE };
  const group = "policy.gateway.internal";
  await apply(api, {
    apiVersion: `${group}/v1alpha1`,
    kind: "GatewayParameters",
    metadata,
    spec: { serviceType: "None" },
  });
  const gateway = httpGateway(metadata, port);
  const infrastructure = { parametersRef: { group, kind: "GatewayParameters", name: LOCAL } };
  await apply(api, { ...gateway, spec: { ...gateway.spec, infrastructure } });
  await apply(api, versionedRoute(metadata, LOCAL, LOCAL_VERSION));
  const deployment = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/${LOCAL}-gateway`;
  await until("the deployment", async () => (await api.call("GET", deployment)).status === 200);
  return controllerCertificate(api, `${NAMESPACE}/${LOCAL}`);
}

function shell(command) {
  const { status } = spawnSync("sh", ["-c", command], { stdio: "inherit" });
  if (status !== 0) throw new Error(`${command} failed`);
}
