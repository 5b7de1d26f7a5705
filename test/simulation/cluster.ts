/**
 * A Kubernetes cluster: an API server, two replicas of the controller, and data planes that follow them. An operator
 * changes a route, and replicas lose the API server, are killed, and are restarted. Checks that only the leader writes,
 * and that data planes get every change.
 */
import type { ApiClient, ApiRequest } from "../../src/kubernetes/api-client.ts";
import type { Controller } from "../../src/kubernetes/controller.ts";
import type { Following } from "../../src/kubernetes/follow-controller.ts";
import { addressOf, CERTIFICATE, CONTROLLER_NAME, TOKEN_FILE } from "./config.ts";
import type { ControllerCode } from "./controller.ts";
import type { Network } from "./network.ts";
import { sleep } from "./peer.ts";
import { OUTSIDE, type Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

const PORT = 9443;
/** The replicas of the controller. */
export const CONTROLLERS = 2;
const DATA_PLANES = 3;
/** Average times between two changes of the route, and between two failures. */
const CHANGE_MS = 10 * 60_000;
const FAILURE_MS = 20 * 60_000;
/** The average time of a request to the API server, and of a watch event. */
const API_MS = 5;
const TIMEOUT_MS = 30_000;
/** A change arrives within this time, if a replica works. */
const LATE_MS = 120_000;
/** A replica that starts or gets its network back works after this time. */
const RECOVERY_MS = 60_000;
const ENDED_MS = 60_000;
const GATEWAY_API = "/apis/gateway.networking.k8s.io/v1";
const LEASES = "/apis/coordination.k8s.io/v1/leases";
const NAMESPACE = "system";

export interface ClusterReport {
  readonly scheduler: Scheduler;
  readonly network: Network;
  note(line: string): void;
  broken(invariant: string, detail: string): void;
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
  readonly #planes: { readonly name: string; following: Following | undefined }[] = [];
  #started = 0;
  #version = 0;

  constructor(random: Seeded, code: ControllerCode, report: ClusterReport) {
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
  }

  async run(untilMs: number): Promise<void> {
    for (let i = 0; i < CONTROLLERS; i++) await this.#start(i);
    for (let i = 0; i < DATA_PLANES; i++) this.#follow(i);
    this.#change();
    await Promise.all([
      this.#nowAndThen(this.#random.part("changes"), CHANGE_MS, untilMs, async () => this.#change()),
      this.#nowAndThen(this.#random.part("failures"), FAILURE_MS, untilMs, (own) => this.#fail(own)),
    ]);
    await sleep(this.#report.scheduler, LATE_MS);
  }

  async stop(): Promise<void> {
    const { scheduler, network, broken } = this.#report;
    const names = [...this.#planes, ...this.#running()].map(({ name }) => name);
    for (const { name, following } of this.#planes) scheduler.after(0, () => following?.stop(), name);
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
        listen: { host: "", port: PORT },
        host: addressOf(name),
        url: `https://${CONTROLLER_NAME}:${PORT}`,
        deploy: undefined,
      });
    replica.controller = await this.#in(name, start);
  }

  async #stop({ name, controller }: Replica): Promise<void> {
    await this.#in(name, () => controller?.stop() ?? Promise.resolve());
  }

  #follow(index: number): void {
    const { followController, clock, logger } = this.#code;
    const plane: { readonly name: string; following: Following | undefined } = {
      name: `plane ${index}`,
      following: undefined,
    };
    this.#planes.push(plane);
    const own = this.#random.part(plane.name);
    const follow = (): void => {
      const following = followController({
        url: `https://${CONTROLLER_NAME}:${PORT}`,
        certificate: CERTIFICATE,
        gateway: "infra/edge",
        instance: `pod-${index}`,
        tokenFile: TOKEN_FILE,
        stateFolder: undefined,
        clock,
        logger,
        random: () => own.fraction(),
      });
      const { source } = following;
      plane.following = following;
      source.onChange(() => {
        this.#report.note(`${plane.name} has version ${source.current()?.version}`);
        source.applied(source.current()?.version ?? "", { isServed: true, problems: [], failures: [] });
      });
    };
    this.#report.scheduler.after(0, follow, plane.name);
  }

  /** Changes a route. */
  #change(): void {
    const { scheduler, note } = this.#report;
    this.#version += 1;
    const version = this.#version;
    note(`route version ${version}`);
    this.#api.put(`${GATEWAY_API}/httproutes`, {
      metadata: { name: "route", namespace: "infra", generation: version },
      spec: { parentRefs: [{ name: "edge" }], hostnames: [hostOf(version)], rules: [{}] },
    });
    scheduler.after(LATE_MS, () => this.#check(version), OUTSIDE);
  }

  #check(version: number): void {
    const { scheduler, broken } = this.#report;
    const isGood = ({ reach, goodSinceMs }: Replica): boolean =>
      reach === "good" && scheduler.nowMs - goodSinceMs > LATE_MS + RECOVERY_MS;
    if (version !== this.#version || !this.#running().some(isGood)) return;
    for (const { name, following } of this.#planes)
      if (!JSON.stringify(following?.source.snapshot()?.documents ?? "").includes(hostOf(version)))
        broken("data planes get every change", `${name} does not have version ${version}`);
    if (this.#running().filter(isGood).length < CONTROLLERS) return;
    const gateway = this.#api.get(`${GATEWAY_API}/gateways`, "infra", "edge") as GatewayObject | undefined;
    const programmed = gateway?.status?.conditions?.find(({ type }) => type === "Programmed")?.status;
    if (programmed !== "True") broken("the status names what data planes serve", `Programmed is ${programmed}`);
  }

  async #fail(own: Seeded): Promise<void> {
    const { scheduler, note, network } = this.#report;
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
      if (how === "lost") for (const watch of [...replica.watches]) watch.end(new Error("connection lost"));
      await sleep(scheduler, own.exponential(30_000));
      replica.reach = "good";
      replica.goodSinceMs = scheduler.nowMs;
      for (const watch of replica.watches) watch.flush();
      return;
    }
    this.#replicas[index] = undefined;
    if (how === "restarted") await this.#stop(replica);
    else {
      scheduler.end(replica.name);
      network.end(replica.name);
    }
    for (const { stop } of replica.watches) stop();
    await sleep(scheduler, own.exponential(20_000));
    await this.#start(index);
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

  /** Runs in a process, and resolves outside of it. */
  #in<Value>(name: string, run: () => Promise<Value>): Promise<Value> {
    const { scheduler } = this.#report;
    return new Promise((resolve, reject) => {
      const leave = (then: () => void): void => void scheduler.after(0, then, OUTSIDE);
      const enter = (): void =>
        void run().then(
          (value) => leave(() => resolve(value)),
          (error: unknown) => leave(() => reject(error)),
        );
      scheduler.after(0, enter, name);
    });
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
