/**
 * Runs the gateway as a process: signals, exit codes, and the last words. Loaded only when there is something to run.
 */
import { writeSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { startApp } from "../app/app.ts";
import type { App } from "../app/app-options.ts";
import { firstSteps } from "../app/first-steps.ts";
import { StartError } from "../app/start-error.ts";
import type { ThreadData } from "../app/threads/messages.ts";
import { HANDED_SOCKETS } from "../app/upgrade/messages.ts";
import { openPredecessor, parentChannel } from "../app/upgrade/predecessor.ts";
import { startSuccessor, tellingManager } from "../app/upgrade/successor.ts";
import { type ReportFormat, testConfig, validateOnly, validationReport } from "../app/validate.ts";
import { keepAwake, systemClock, wait } from "../base/clock.ts";
import { isOneFile } from "../base/embedded-files.ts";
import { endsWithProcess, openServiceManager } from "../base/service-manager.ts";
import { VERSION } from "../base/version.ts";
import { defaultConfig, defaultListenHint } from "../config/load/default-config.ts";
import { type Environment, processEnvironment } from "../config/text/env.ts";
import { setFastReads } from "../http/h1/socket-reads.ts";
import { openLogOutput } from "../observe/log/log-output.ts";
import { describeDefect } from "../observe/log/unexpected-errors.ts";
import { type ClusterFlags, clusterConfig, followedCluster } from "./cluster.ts";
import { demoProgram } from "./demo-program.ts";

/** How long the last lines of the log may take. */
const LAST_LINES_MS = 1_000;

export interface ValidateFlags {
  readonly strict: boolean;
  readonly format: ReportFormat;
  readonly allowMissingEnv: boolean;
}

export interface RunOptions {
  readonly files: readonly string[] | undefined;
  /** Set: a Gateway of a cluster is served. */
  readonly cluster?: ClusterFlags | undefined;
  /** Set: only checks. */
  readonly validate: ValidateFlags | undefined;
  /** Runs the tests of the configuration instead of checking it. */
  readonly isTest: boolean;
  readStdin(): string;
}

export async function run(options: RunOptions): Promise<number> {
  const isDefault = options.files === undefined && options.cluster === undefined;
  const sources = options.files ?? {
    text: options.cluster ? clusterConfig(options.cluster) : defaultConfig(demoProgram()),
  };
  const environment = processEnvironment();
  setFastReads(environment.GATEWAY_FAST_READS !== "off");
  const common = { sources, environment, clock: systemClock, readStdin: options.readStdin };
  try {
    if (options.validate) {
      const { strict, format, allowMissingEnv } = options.validate;
      const report = options.isTest
        ? await awake(testConfig({ ...common, allowMissingEnv, format }))
        : validationReport(validateOnly({ ...common, allowMissingEnv }), format, strict);
      writeSync(2, report.stderr);
      writeSync(1, report.stdout);
      return report.code;
    }
    return await serve(common, isDefault, options.cluster);
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    writeSync(2, `${(isDefault ? error.lines.map(defaultListenHint) : error.lines).join("\n")}\n`);
    return 1;
  }
}

/** A test of a policy that waits has only timers, which do not keep the process. */
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
  // Asking for the stream makes a pipe non-blocking: a reader that takes nothing would otherwise hold a thread of
  // ours, and with it the end of the process, for as long as it likes.
  process.stdout.on("error", () => undefined);
  const output = openLogOutput(1, systemClock);
  let app: App | undefined;
  let isStopWanted = false;
  // Before anything listens: whoever sees the port open may also ask us to go. SIGHUP: a terminal that goes away must
  // not take the gateway with it in the middle of a request.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(signal, () => {
      if (app) void app.stop();
      else isStopWanted = true;
    });
  }
  // The last resort: nothing that one connection or one server does may end the others. While starting, it is a
  // start that failed.
  const onDefect = (error: unknown): void => {
    if (app) app.unexpected(error);
    else {
      output.flushSync();
      say(2, `${describeDefect(error)}\n`);
      process.exit(1);
    }
  };
  const { environment } = common;
  const manager = openServiceManager({ environment, wait: (seconds) => wait(systemClock, seconds * 1000) });
  process.on("uncaughtException", onDefect);
  process.on("unhandledRejection", onDefect);
  try {
    const predecessor = environment[HANDED_SOCKETS] ? openPredecessor(environment, parentChannel()) : undefined;
    const followed = cluster && (await followedCluster(cluster, environment, output, () => isStopWanted));
    if (cluster && !followed) return 0;
    app = await startApp({
      ...common,
      ...(followed ? { cluster: followed } : {}),
      predecessor,
      startSuccessor(sockets, events) {
        const obstacle = endsWithProcess(environment, process.pid);
        if (obstacle !== undefined) throw new Error(obstacle);
        return tellingManager(manager, events, (told) => startSuccessor(sockets, environment, told));
      },
      output,
      color: wantsColor(common.environment),
      version: VERSION,
      ...(isOneFile() ? {} : { startThread }),
    });
  } catch (error) {
    output.flushSync();
    throw error;
  }
  if (isStopWanted) void app.stop();
  const upgrade = app.upgrade;
  process.on("SIGUSR2", () => void upgrade());
  manager?.ready().catch((error: Error) => say(2, `cannot tell systemd that the gateway serves: ${error.message}\n`));

  // Whoever pipes the log has the same in its lines (`listening … url=… paths=…`); the demo has nothing but this.
  if (isDefault || process.stdout.isTTY) {
    output.flushSync();
    const isNpmStart = common.environment.npm_lifecycle_event === "start";
    say(1, firstSteps(app, isDefault, isNpmStart ? "npm start --" : "gateway"));
  }
  await app.stopped;
  // A reader that takes nothing must not keep us from ending.
  await Promise.race([output.flushed(), wait(systemClock, LAST_LINES_MS)]);
  // Whatever a library left open (a socket, a timer) must not keep the process.
  process.exit(0);
}

function startThread(workerData: ThreadData): Worker {
  return new Worker(new URL("./thread.js", import.meta.url), { workerData });
}

/** As https://no-color.org and Node have it: FORCE_COLOR over NO_COLOR over what the output is. */
function wantsColor({ FORCE_COLOR = "", NO_COLOR = "", TERM }: Environment): boolean {
  if (FORCE_COLOR !== "") return FORCE_COLOR !== "0";
  return NO_COLOR === "" && process.stdout.isTTY === true && TERM !== "dumb";
}

/** To whoever still listens: a closed pipe is no reason to end. */
function say(fd: number, text: string): void {
  try {
    writeSync(fd, text);
  } catch {
    // Nobody is there to be told.
  }
}
