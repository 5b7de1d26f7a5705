/**
 * Runs the gateway as a process, with signals, exit codes, and the final log output.
 */
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { startApp } from "../app/app.ts";
import type { App } from "../app/app-options.ts";
import { firstSteps } from "../app/first-steps.ts";
import { StartError } from "../app/start-error.ts";
import type { ThreadData } from "../app/threads/messages.ts";
import { HANDED_SOCKETS } from "../app/upgrade/messages.ts";
import { openPredecessor, parentChannel } from "../app/upgrade/predecessor.ts";
import { notifyingManager, startSuccessor } from "../app/upgrade/successor.ts";
import { type ReportFormat, testConfig, validateOnly, validationReport } from "../app/validate.ts";
import { keepAwake, systemClock, wait } from "../base/clock.ts";
import { embeddedText } from "../base/embedded-files.ts";
import { print } from "../base/print.ts";
import { endsWithProcess, openServiceManager } from "../base/service-manager.ts";
import { VERSION } from "../base/version.ts";
import { defaultConfig, defaultListenHint } from "../config/load/default-config.ts";
import { type Environment, processEnvironment } from "../config/text/env.ts";
import { setFastReads } from "../http/h1/socket-reads.ts";
import { restrictNetworks } from "../http/local-address.ts";
import { openLogOutput } from "../record/log/log-output.ts";
import { describeDefect } from "../record/log/logger.ts";
import type { ClusterFlags } from "./cluster.ts";
import { flushCompileCache } from "./compile-cache.ts";
import { demoProgram } from "./demo-program.ts";
import { releaseYoungGeneration } from "./young-generation.ts";

const LAST_LINES_MS = 1_000;
/** The file is next to the program in the bundle, or in the single executable. */
const THREAD_FILE = "thread.js";

export interface ValidateFlags {
  readonly strict: boolean;
  readonly format: ReportFormat;
  readonly allowMissingEnv: boolean;
}

export interface RunOptions {
  readonly files: readonly string[] | undefined;
  readonly cluster?: ClusterFlags | undefined;
  /** If set, the configuration is validated or tested, and the gateway does not start. */
  readonly validate: ValidateFlags | undefined;
  readonly isTest: boolean;
  readStdin(): string;
}

export async function run(options: RunOptions): Promise<number> {
  const isDefault = options.files === undefined && options.cluster === undefined;
  const { GATEWAY_BACKEND_NETWORKS, ...variables } = processEnvironment();
  const ofCluster = options.cluster && (await import("./cluster.ts")).clusterConfig(options.cluster, variables);
  // Only documents of a cluster are restricted, by default to public addresses.
  const environment = ofCluster
    ? { ...ofCluster.environment, GATEWAY_BACKEND_NETWORKS: GATEWAY_BACKEND_NETWORKS ?? "" }
    : variables;
  restrictNetworks(environment.GATEWAY_BACKEND_NETWORKS);
  const sources = options.files ?? {
    text: ofCluster?.text ?? defaultConfig(demoProgram(), demoHistory(environment)),
  };
  setFastReads(environment.GATEWAY_FAST_READS !== "off");
  const common = { sources, environment, clock: systemClock, readStdin: options.readStdin };
  try {
    if (options.validate) {
      const { strict, format, allowMissingEnv } = options.validate;
      const report = options.isTest
        ? await awake(testConfig({ ...common, allowMissingEnv, format }))
        : validationReport(validateOnly({ ...common, allowMissingEnv }), format, strict);
      print(2, report.stderr);
      print(1, report.stdout);
      return report.code;
    }
    return await serve(common, isDefault, options.cluster);
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    print(2, `${(isDefault ? error.lines.map(defaultListenHint) : error.lines).join("\n")}\n`);
    return 1;
  }
}

/** Only `npm start` records a history, because the embedded default writes no files otherwise. */
function demoHistory(environment: Environment): string | undefined {
  return isNpmStart(environment) ? join(tmpdir(), `gateway-demo-history-${userInfo().uid}`) : undefined;
}

function isNpmStart({ npm_lifecycle_event: event }: Environment): boolean {
  return event === "start";
}

/** The timers of the system clock do not keep the process alive while a policy waits. */
async function awake<Result>(work: Promise<Result>): Promise<Result> {
  const timer = keepAwake();
  try {
    return await work;
  } finally {
    timer.cancel();
  }
}

async function serve(
  common: Omit<Parameters<typeof startApp>[0], "output" | "version">,
  isDefault: boolean,
  cluster: ClusterFlags | undefined,
): Promise<number> {
  // Accessing process.stdout makes a pipe non-blocking. With a blocking pipe, a stalled reader would prevent the
  // process from exiting.
  process.stdout.on("error", () => undefined);
  const output = openLogOutput(1, systemClock);
  let app: App | undefined;
  let isStopWanted = false;
  // The handlers are installed before any port opens, so that no signal is lost. SIGHUP is handled, so that closing a
  // terminal drains requests.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(signal, () => {
      // After Ctrl+C, a user waits for the exit, so idle connections close immediately.
      if (app) void app.stop(signal === "SIGINT");
      else isStopWanted = true;
    });
  }
  // An exception in one connection must not end the others. During the start, it ends the process.
  const onDefect = (error: unknown): void => {
    if (app) app.unexpected(error);
    else {
      output.flushSync();
      printIfOpen(2, `${describeDefect(error)}\n`);
      process.exit(1);
    }
  };
  const { environment } = common;
  const manager = openServiceManager({ environment, wait: (seconds) => wait(systemClock, seconds * 1000) });
  process.on("uncaughtException", onDefect);
  process.on("unhandledRejection", onDefect);
  try {
    const predecessor = environment[HANDED_SOCKETS] ? openPredecessor(environment, parentChannel()) : undefined;
    const followed = cluster && (await follow(cluster, environment, output, () => isStopWanted));
    if (cluster && !followed) return 0;
    app = await startApp({
      ...common,
      ...(followed ? { cluster: followed } : {}),
      predecessor,
      startSuccessor(sockets, events) {
        const obstacle = endsWithProcess(environment, process.pid);
        if (obstacle !== undefined) throw new Error(obstacle);
        return notifyingManager(manager, events, (notifying) => startSuccessor(sockets, environment, notifying));
      },
      output,
      color: wantsColor(common.environment),
      version: VERSION,
      startThread,
    });
  } catch (error) {
    output.flushSync();
    throw error;
  }
  if (isStopWanted) void app.stop();
  const upgrade = app.upgrade;
  process.on("SIGUSR2", () => void upgrade());
  manager?.ready().catch((error: Error) => printIfOpen(2, `could not notify systemd: ${error.message}\n`));

  // The text is for a user at a terminal and is not part of the log.
  if (isDefault || process.stdout.isTTY) {
    output.flushSync();
    printIfOpen(1, firstSteps(app, isDefault, isNpmStart(common.environment) ? "npm start --" : "gateway"));
  }
  flushCompileCache();
  releaseYoungGeneration();
  await app.stopped;
  // A stalled reader must not delay the exit.
  await Promise.race([output.flushed(), wait(systemClock, LAST_LINES_MS)]);
  // A socket or timer that a library left open must not keep the process alive.
  process.exit(0);
}

async function follow(...parameters: Parameters<typeof import("./cluster.ts").followedCluster>) {
  const { followedCluster } = await import("./cluster.ts");
  return followedCluster(...parameters);
}

function startThread(workerData: ThreadData): Worker {
  const embedded = embeddedText(THREAD_FILE);
  return embedded === undefined
    ? new Worker(new URL(`./${THREAD_FILE}`, import.meta.url), { workerData })
    : new Worker(embedded, { workerData, eval: true });
}

/** FORCE_COLOR overrides NO_COLOR, which overrides the terminal check (https://no-color.org). */
function wantsColor({ FORCE_COLOR = "", NO_COLOR = "", TERM }: Environment): boolean {
  if (FORCE_COLOR !== "") return FORCE_COLOR !== "0";
  return NO_COLOR === "" && process.stdout.isTTY === true && TERM !== "dumb";
}

function printIfOpen(fd: 1 | 2, text: string): void {
  try {
    print(fd, text);
  } catch {
    // The pipe is closed.
  }
}
