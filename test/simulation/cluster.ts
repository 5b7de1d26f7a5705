/**
 * A Kubernetes cluster: an API server, two replicas of the controller, data planes that follow them, and a Service with
 * clients. An operator changes a route and the endpoints of the Service. Replicas lose the API server, are killed, and
 * are restarted, and so are data planes. Checks that only the leader writes, that data planes get every change, and that
 * they serve the last configuration that they got.
 */
import type { ApiClient, ApiRequest } from "../../src/kubernetes/api-client.ts";
import type { Controller } from "../../src/kubernetes/controller.ts";
import { addressOf, CERTIFICATE, CONTROLLER_NAME, CONTROLLER_PORT } from "./config.ts";
import type { ControllerCode } from "./controller.ts";
import { DataPlane, type DataPlaneReport } from "./data-plane.ts";
import type { GatewayCode } from "./gateway.ts";
import { sleep } from "./peer.ts";
import { OUTSIDE, runIn } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";
import {
  POD_PORT,
  PODS,
  podAddress,
  SERVICE_HOST,
  ServiceClient,
  type ServiceReport,
  startPod,
  VERSION_HEADER,
} from "./service.ts";

/** The replicas of the controller. */
export const CONTROLLERS = 2;
export const DATA_PLANES = 2;
const CLIENTS = 2;
/** Average times between two changes of the route, and between two failures. */
const CHANGE_MS = 10 * 60_000;
const FAILURE_MS = 20 * 60_000;
/** Average time between two restarts of a data plane. */
const RESTART_MS = 60 * 60_000;
/** The average time of a request to the API server, and of a watch event. */
const API_MS = 5;
const TIMEOUT_MS = 30_000;
/** A change arrives within this time, if a replica works. */
const LATE_MS = 120_000;
/** If all replicas work and the network does not fail, a change arrives within this time. */
const SOON_MS = 2_000;
/** A replica that starts or gets its network back works after this time. */
const RECOVERY_MS = 60_000;
const ENDED_MS = 60_000;
const GATEWAY_API = "/apis/gateway.networking.k8s.io/v1";
const LEASES = "/apis/coordination.k8s.io/v1/leases";
const NAMESPACE = "system";

export type ClusterReport = DataPlaneReport & ServiceReport;

/** What the API server has: the version of the route, and the pods of the Service. */
interface State {
  readonly version: number;
  readonly pods: readonly number[];
}

interface Replica {
  readonly name: string;
  controller: Controller | undefined;
  /** A request of a `lost` replica fails at once, and one of a replica that `hangs` after its time limit. */
  reach: "good" | "lost" | "hangs";
  /** It has worked since this time. */
  goodSinceMs: number;
  readonly watches: Set<Watch>;
}

interface Watch {
  readonly end: (error: Error) => void;
  /** Delivers the events that waited for the network. */
  readonly flush: () => void;
  readonly stop: () => void;
}

export class Cluster {
  readonly #report: ClusterReport;
  readonly #random: Seeded;
  readonly #code: ControllerCode;
  readonly #api: ReturnType<ControllerCode["fakeApi"]>;
  readonly #replicas: (Replica | undefined)[] = [];
  readonly #planes: readonly DataPlane[];
  readonly #states: State[] = [];
  /** The first of the states that data planes may serve. */
  #due = 0;
  /** Until this time, a replica may send an older state to a data plane that connects to it. */
  #lagsUntilMs = 0;
  #started = 0;

  /** `planeCode` are copies of the gateway's code for the data planes. A killed process needs another copy. */
  constructor(random: Seeded, code: ControllerCode, planeCode: GatewayCode[], report: ClusterReport) {
    this.#random = random;
    this.#code = code;
    this.#report = report;
    this.#api = code.fakeApi();
    this.#api.install(...code.collections);
    const data = {
      "tls.crt": Buffer.from(CERTIFICATE).toString("base64"),
      "tls.key": Buffer.from("simulated").toString("base64"),
    };
    const metadata = { name: "gateway-controller-certificate", namespace: NAMESPACE };
    this.#api.put("/api/v1/secrets", { metadata, data });
    this.#api.put(`${GATEWAY_API}/gatewayclasses`, {
      metadata: { name: "gateway" },
      spec: { controllerName: "policy.gateway.internal/gateway" },
    });
    this.#api.put(`${GATEWAY_API}/gateways`, {
      metadata: { name: "edge", namespace: "infra", generation: 1 },
      spec: { gatewayClassName: "gateway", listeners: [{ name: "http", port: 80, protocol: "HTTP" }] },
    });
    this.#api.put("/api/v1/services", {
      metadata: { name: "app", namespace: "infra" },
      spec: { ports: [{ port: 80, targetPort: POD_PORT }] },
    });
    this.#planes = Array.from(
      { length: DATA_PLANES },
      (_, i) => new DataPlane(i, random.part(`plane ${i}`), planeCode, report),
    );
  }

  async run(untilMs: number): Promise<void> {
    const random = this.#random;
    for (let i = 0; i < PODS; i++) startPod(i, random.part(`pod ${i}`), this.#report);
    this.#change(random.part("first change"));
    for (let i = 0; i < CONTROLLERS; i++) await this.#start(i);
    await Promise.all(this.#planes.map((plane) => plane.start()));
    const clients = Array.from({ length: CLIENTS }, (_, i) =>
      new ServiceClient(i, random.part(`client ${i}`), this.#planes, this.#expect, this.#report).run(),
    );
    await Promise.all([
      this.#nowAndThen(random.part("changes"), CHANGE_MS, untilMs, async (own) => this.#change(own)),
      this.#nowAndThen(random.part("failures"), FAILURE_MS, untilMs, (own) => this.#fail(own)),
      this.#nowAndThen(random.part("restarts"), RESTART_MS, untilMs, (own) => own.pick(this.#planes).restart()),
    ]);
    await sleep(this.#report.scheduler, LATE_MS);
    await Promise.all(clients);
  }

  async stop(): Promise<void> {
    const { scheduler, network, broken } = this.#report;
    const names = this.#running().map(({ name }) => name);
    await Promise.all(this.#planes.map((plane) => plane.stop()));
    await Promise.all(this.#running().map((replica) => this.#stop(replica)));
    await sleep(scheduler, ENDED_MS);
    for (const name of names) {
      for (const { label } of network.openSides(name)) broken("the shutdown closes all connections", label);
      const waiting = scheduler.pending(name);
      if (waiting > 0) broken("the shutdown stops all timers", `${waiting} tasks of ${name} wait`);
    }
  }

  async #nowAndThen(own: Seeded, meanMs: number, untilMs: number, act: (own: Seeded) => Promise<void>): Promise<void> {
    const { scheduler } = this.#report;
    for (;;) {
      const pauseMs = own.exponential(meanMs);
      if (scheduler.nowMs + pauseMs >= untilMs) return;
      await sleep(scheduler, pauseMs);
      await act(own);
    }
  }

  #running(): Replica[] {
    return this.#replicas.filter((replica) => replica !== undefined);
  }

  async #start(index: number): Promise<void> {
    const { scheduler } = this.#report;
    const { startController, clock, logger } = this.#code;
    this.#started += 1;
    const name = `controller ${index}.${this.#started}`;
    const own = this.#random.part(name);
    const replica: Replica = {
      name,
      controller: undefined,
      reach: "good",
      goodSinceMs: scheduler.nowMs,
      watches: new Set(),
    };
    this.#replicas[index] = replica;
    const start = (): Promise<Controller> =>
      startController({
        client: this.#client(replica, own),
        clock,
        logger,
        random: () => own.fraction(),
        namespace: NAMESPACE,
        identity: name.replace(" ", "-"),
        listen: { host: "", port: CONTROLLER_PORT },
        host: addressOf(name),
        url: `https://${CONTROLLER_NAME}:${CONTROLLER_PORT}`,
        deploy: undefined,
      });
    replica.controller = await runIn(scheduler, name, start);
  }

  async #stop({ name, controller }: Replica): Promise<void> {
    await runIn(this.#report.scheduler, name, () => controller?.stop() ?? Promise.resolve());
  }

  /** Changes the endpoints of the Service, and usually also the route. */
  #change(own: Seeded): void {
    const { scheduler, note, isCalm } = this.#report;
    const before = this.#states.at(-1)?.version ?? 0;
    const version = before === 0 || own.chance(0.7) ? before + 1 : before;
    const pods = own.pick([[0], [1], [0, 1]]);
    const state: State = { version, pods };
    this.#states.push(state);
    const number = this.#states.length;
    note(`route version ${version}, pods ${pods.join()}`);
    this.#api.put("/apis/discovery.k8s.io/v1/endpointslices", {
      metadata: { name: "app", namespace: "infra", labels: { "kubernetes.io/service-name": "app" } },
      addressType: "IPv4",
      ports: [{ port: POD_PORT }],
      endpoints: pods.map((pod) => ({ addresses: [podAddress(pod)], conditions: { ready: true } })),
    });
    const set = [{ name: VERSION_HEADER, value: String(version) }];
    const filters = [
      { type: "RequestHeaderModifier", requestHeaderModifier: { set } },
      { type: "ResponseHeaderModifier", responseHeaderModifier: { set } },
    ];
    if (version > before)
      this.#api.put(`${GATEWAY_API}/httproutes`, {
        metadata: { name: "route", namespace: "infra", generation: version },
        spec: {
          parentRefs: [{ name: "edge" }],
          hostnames: [SERVICE_HOST, hostOf(version)],
          rules: [{ filters, backendRefs: [{ name: "app", port: 80 }] }],
        },
      });
    const arrivesSoon = isCalm && this.#good(RECOVERY_MS).length === CONTROLLERS;
    if (arrivesSoon) scheduler.after(SOON_MS, () => this.#checkSoon(number), OUTSIDE);
    scheduler.after(LATE_MS, () => this.#check(number), OUTSIDE);
  }

  /** The replicas that have worked for this time. */
  #good(ms: number): Replica[] {
    const { nowMs } = this.#report.scheduler;
    return this.#running().filter(({ reach, goodSinceMs }) => reach === "good" && nowMs - goodSinceMs > ms);
  }

  #checkSoon(number: number): void {
    if (number === this.#states.length && this.#good(RECOVERY_MS).length === CONTROLLERS) this.#due = number - 1;
  }

  #check(number: number): void {
    const { scheduler, broken } = this.#report;
    const version = this.#states.at(-1)?.version ?? 0;
    const good = this.#good(LATE_MS + RECOVERY_MS);
    if (number !== this.#states.length || good.length === 0) return;
    this.#due = number - 1;
    for (const plane of this.#planes)
      if (plane.servedSince(scheduler.nowMs - LATE_MS) && !plane.documents().includes(hostOf(version)))
        broken("data planes get every change", `plane ${plane.index} does not have version ${version}`);
    if (good.length < CONTROLLERS) return;
    const gateway = this.#api.get(`${GATEWAY_API}/gateways`, "infra", "edge") as GatewayObject | undefined;
    const programmed = gateway?.status?.conditions?.find(({ type }) => type === "Programmed")?.status;
    if (programmed !== "True") broken("the status names what data planes serve", `Programmed is ${programmed}`);
  }

  /** A response has the newest state that must have arrived before its request was sent, or a later one. */
  readonly #expect = (plane: DataPlane): ((version: number, pod: number) => void) => {
    const { scheduler, broken, isCalm } = this.#report;
    const due = this.#due;
    const sentMs = scheduler.nowMs;
    return (version, pod) => {
      const mayLag = this.#lagsUntilMs > sentMs || (!isCalm && !plane.servedSince(sentMs - LATE_MS));
      const states = this.#states.slice(mayLag ? 0 : due);
      if (states.some((state) => state.version === version) && states.some(({ pods }) => pods.includes(pod))) return;
      const served = `version ${version} of pod ${pod}`;
      broken(
        "data planes serve the last configuration",
        `plane ${plane.index} served ${served}, not ${JSON.stringify(states)}`,
      );
    };
  };

  async #fail(own: Seeded): Promise<void> {
    const { scheduler, note } = this.#report;
    if (own.chance(0.3)) return this.#failAll(own);
    const index = own.int(CONTROLLERS);
    const replica = this.#replicas[index];
    if (replica === undefined) return;
    const how = own.pick(["lost", "hangs", "killed", "restarted", "expired"] as const);
    note(`${replica.name} ${how}`);
    if (how === "expired") {
      // The API server restarts, and does not have old versions.
      this.#api.compact();
      for (const one of this.#running()) for (const watch of [...one.watches]) watch.end(new Error("closed"));
      return;
    }
    if (how === "lost" || how === "hangs") {
      replica.reach = how;
      this.#lagsUntilMs = Number.POSITIVE_INFINITY;
      if (how === "lost") for (const watch of [...replica.watches]) watch.end(new Error("connection lost"));
      await sleep(scheduler, own.exponential(30_000));
      replica.reach = "good";
      replica.goodSinceMs = scheduler.nowMs;
      this.#lagsUntilMs = scheduler.nowMs + LATE_MS;
      for (const watch of replica.watches) watch.flush();
      return;
    }
    if (how === "killed") this.#kill(index);
    else {
      this.#replicas[index] = undefined;
      await this.#stop(replica);
      for (const { stop } of replica.watches) stop();
    }
    await sleep(scheduler, own.exponential(20_000));
    await this.#start(index);
  }

  /** No controller is available. */
  async #failAll(own: Seeded): Promise<void> {
    this.#report.note("all controllers killed");
    for (let i = 0; i < CONTROLLERS; i++) this.#kill(i);
    if (own.chance(0.7)) await own.pick(this.#planes).restart();
    await sleep(this.#report.scheduler, own.exponential(120_000));
    for (let i = 0; i < CONTROLLERS; i++) await this.#start(i);
  }

  #kill(index: number): void {
    const replica = this.#replicas[index];
    if (replica === undefined) return;
    this.#replicas[index] = undefined;
    this.#report.scheduler.end(replica.name);
    this.#report.network.end(replica.name);
    for (const { stop } of replica.watches) stop();
  }

  /** The API server as a replica reaches it. */
  #client(replica: Replica, own: Seeded): ApiClient {
    const { scheduler } = this.#report;
    const request = (sent: ApiRequest): Promise<unknown> =>
      new Promise((resolve, reject) => {
        const back = (then: () => void): void => void scheduler.after(own.exponential(API_MS), then, replica.name);
        if (replica.reach !== "good") {
          const limitMs = replica.reach === "lost" ? 0 : (sent.timeoutMs ?? TIMEOUT_MS);
          scheduler.after(limitMs, () => reject(new Error("the API server is unavailable")));
          return;
        }
        const arrive = (): void =>
          void this.#respond(replica, sent).then(
            (value) => back(() => resolve(value)),
            (error: unknown) => back(() => reject(error)),
          );
        scheduler.after(own.exponential(API_MS), arrive, OUTSIDE);
      });
    const watch: ApiClient["watch"] = (path, handler, idleMs) => {
      const waiting: (() => void)[] = [];
      let lastMs = 0;
      let isOver = false;
      const deliver = (event: () => void): void => {
        if (replica.reach === "hangs") {
          waiting.push(event);
          return;
        }
        lastMs = Math.max(lastMs, scheduler.nowMs + own.exponential(API_MS));
        scheduler.at(lastMs, () => (isOver ? undefined : event()), replica.name);
      };
      const opened: Watch = {
        flush: () => {
          for (const event of waiting.splice(0)) deliver(event);
        },
        stop: () => {
          isOver = true;
          close();
          replica.watches.delete(opened);
        },
        end: (error) => {
          close();
          replica.watches.delete(opened);
          deliver(() => handler.end(error));
        },
      };
      const close = this.#api.watch(
        path,
        {
          event: (event) => deliver(() => handler.event(event)),
          end: (error) => opened.end(error ?? new Error("closed")),
        },
        idleMs,
      );
      replica.watches.add(opened);
      if (replica.reach === "lost") opened.end(new Error("connection refused"));
      return opened.stop;
    };
    return { ...this.#api, request, watch };
  }

  async #respond({ name }: Replica, request: ApiRequest): Promise<unknown> {
    if (request.path.endsWith("/tokenreviews")) {
      const user = { username: "system:serviceaccount:infra:edge-gateway" };
      return { status: { authenticated: true, audiences: ["gateway-controller"], user } };
    }
    if (request.method !== "GET" && request.path.endsWith("/status")) {
      const lease = this.#api.get(LEASES, NAMESPACE, "gateway-controller") as LeaseObject | undefined;
      const holder = lease?.spec?.holderIdentity ?? "";
      if (holder !== "" && holder !== name.replace(" ", "-"))
        this.#report.broken("only the leader writes", `${name} writes while ${holder} leads`);
    }
    return this.#api.request(request);
  }
}

interface GatewayObject {
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

interface LeaseObject {
  readonly spec?: { readonly holderIdentity?: string };
}

function hostOf(version: number): string {
  return `v${version}.cluster.test`;
}
