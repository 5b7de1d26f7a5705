/**
 * A data plane of the simulated cluster: a gateway that serves what the controller sends. It is killed, and restarted
 * with the folder in which it saved its last configuration.
 */
import type { App } from "../../src/app/app-options.ts";
import type { Following } from "../../src/kubernetes/follow-controller.ts";
import type { LogOutput } from "../../src/record/log/log-output.ts";
import { addressOf, CERTIFICATE, CONTROLLER_NAME, CONTROLLER_PORT, DRAIN_MS, TOKEN_FILE } from "./config.ts";
import type { GatewayCode } from "./gateway.ts";
import { MEMORY } from "./gateways.ts";
import type { Network } from "./network.ts";
import { sleep } from "./peer.ts";
import { runIn, type Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

/** The process IDs of data planes differ from those of gateways. */
const FIRST_PID = 1_001;
/** Without a controller, a data plane waits 5 s, and then serves its saved configuration. */
const START_LIMIT_MS = 6_000;
const STOP_LIMIT_MS = DRAIN_MS + 13_000;
const ENDED_MS = 60_000;
const CONFIG = `config: { adminAddr: "off", drainTimeout: ${DRAIN_MS / 1000}s, logging: { format: json } }`;

export interface DataPlaneReport {
  readonly scheduler: Scheduler;
  readonly network: Network;
  /** Receives the log of data planes. */
  readonly planeOutput: LogOutput;
  /** Requests to data planes that are in flight may end without a record. */
  planeKilled(): void;
  note(line: string): void;
  broken(invariant: string, detail: string): void;
}

interface Process {
  readonly name: string;
  readonly code: GatewayCode;
  following?: Following;
  app?: App;
}

export class DataPlane {
  readonly index: number;
  readonly address: string;
  /** Infinite while it does not serve. */
  servesSinceMs = Number.POSITIVE_INFINITY;
  readonly #report: DataPlaneReport;
  readonly #random: Seeded;
  /** Copies of the gateway's code that no process uses. All data planes share them. */
  readonly #unused: GatewayCode[];
  #started = 0;
  #process: Process | undefined;

  constructor(index: number, random: Seeded, unused: GatewayCode[], report: DataPlaneReport) {
    this.index = index;
    this.address = addressOf(`plane ${index}`);
    this.#random = random;
    this.#unused = unused;
    this.#report = report;
  }

  /** True if nothing explains that a request fails now, if it was sent at `sentMs`. */
  servedSince(sentMs: number): boolean {
    return this.servesSinceMs <= sentMs;
  }

  /** The last configuration that it received. */
  documents(): string {
    return JSON.stringify(this.#process?.following?.source.snapshot()?.documents ?? "");
  }

  async start(): Promise<void> {
    const { scheduler, planeOutput } = this.#report;
    const code = this.#unused.pop();
    if (code === undefined) throw new Error("no copy of the gateway's code is left");
    const name = `plane ${this.index}.${FIRST_PID + 100 * this.index + this.#started}`;
    this.#started += 1;
    const started: Process = { name, code };
    this.#process = started;
    const own = this.#random.part(name);
    await runIn(scheduler, name, async () => {
      started.following = code.followController({
        url: `https://${CONTROLLER_NAME}:${CONTROLLER_PORT}`,
        certificate: CERTIFICATE,
        gateway: "infra/edge",
        instance: `pod-${this.index}`,
        tokenFile: TOKEN_FILE,
        stateFolder: `/plane/${this.index}`,
        clock: code.clock,
        logger: code.silentLogger,
        random: () => own.fraction(),
      });
      await started.following.first;
      started.app = await code.startApp({
        sources: { text: CONFIG },
        environment: { GATEWAY_BACKEND_NETWORKS: "" },
        cluster: started.following.source,
        clock: code.clock,
        output: planeOutput,
        version: "0.0.0-simulation",
        readStdin: () => "",
        heapSize: () => ({ usedBytes: 1, limitBytes: 100 }),
        memoryLimits: MEMORY,
      });
    });
    this.servesSinceMs = scheduler.nowMs;
    this.#report.note(`${name} serves`);
  }

  /** Kills or stops the process, and starts another one, which serves soon, also if there is no controller. */
  async restart(): Promise<void> {
    const { scheduler, note, broken } = this.#report;
    if (!this.servedSince(scheduler.nowMs)) return;
    const { name = "" } = this.#process ?? {};
    const isKilled = this.#random.chance(0.5) && this.#unused.length > 0;
    note(`${name} ${isKilled ? "killed" : "restarted"}`);
    if (isKilled) this.#kill();
    else await this.stop();
    await sleep(scheduler, this.#random.exponential(2_000));
    const late = scheduler.after(START_LIMIT_MS, () => broken("a data plane starts soon", name));
    await this.start();
    scheduler.cancel(late);
  }

  #kill(): void {
    const { scheduler, network, planeKilled } = this.#report;
    const { name = "" } = this.#process ?? {};
    this.servesSinceMs = Number.POSITIVE_INFINITY;
    this.#process = undefined;
    planeKilled();
    scheduler.end(name);
    network.end(name);
  }

  /** Checks that nothing is left. */
  async stop(): Promise<void> {
    const stopped = this.#process;
    if (stopped?.app === undefined) return;
    const { scheduler, network, broken } = this.#report;
    const { name, code, app, following } = stopped;
    this.servesSinceMs = Number.POSITIVE_INFINITY;
    this.#process = undefined;
    const late = scheduler.after(STOP_LIMIT_MS, () => broken("the shutdown ends in time", name));
    await runIn(scheduler, name, async () => {
      await app.stop();
      following?.stop();
    });
    scheduler.cancel(late);
    await sleep(scheduler, ENDED_MS);
    for (const account of code.accounts())
      broken("memory accounts are empty after the shutdown", `${name}: ${account}`);
    for (const { label } of network.openSides(name)) broken("the shutdown closes all connections", label);
    const waiting = scheduler.pending(name);
    if (waiting > 0) broken("the shutdown stops all timers", `${waiting} tasks of ${name} wait`);
    scheduler.end(name);
    network.end(name);
    this.#unused.push(code);
  }
}
