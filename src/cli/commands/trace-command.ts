/**
 * `gwctl proxy trace` (spec 4.4) shows the trace of a request as JSON lines, as a plain list, or in the terminal UI.
 */

import { randomBytes } from "node:crypto";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { type ProgramOptions, runProgram } from "../../base/run-program.ts";
import { defined } from "../../json/json.ts";
import { portOf, type Target, type TargetFlags } from "../instance/target.ts";
import { CliError, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { openTrace, rawLine, readTraceFile, type TraceView } from "../trace/trace-source.ts";
import { plainLine } from "../trace/trace-text.ts";
import { curlCommand, parseCurlArguments } from "./curl-arguments.ts";
import { openTarget } from "./open-target.ts";

export interface TraceFlags extends TargetFlags {
  readonly raw?: boolean;
  readonly port?: string;
  readonly expression?: string;
  readonly count?: string;
  readonly file?: string;
}

const TRACE_LIMIT_MS = 3_000;
const BROKEN_OFF = "the trace ended early and later events are missing: is the gateway still running?";
const PROXY_VARIABLE = /^(?:https?|all|ftp|no)_proxy$/i;

export async function trace(
  name: string | undefined,
  flags: TraceFlags,
  request: readonly string[] | undefined,
  terminal: Terminal,
): Promise<void> {
  checkFlags(name, flags, request);
  if (flags.file !== undefined) {
    const events = readTraceFile(flags.file, terminal);
    await show(`saved trace ${flags.file}`, flags, terminal, (view) => {
      for (const event of events) view.event(event);
      return Promise.resolve();
    });
    return;
  }
  const injected = request === undefined ? undefined : parseCurlArguments(request);
  const port = flags.port === undefined ? 0 : portOf("--port", flags.port);
  const target = await openTarget(name, flags, terminal);
  try {
    await show(target.admin.display, flags, terminal, async (view) => {
      if (injected) await inject(target, injected, port, view, terminal, flags);
      else await watch(target, flags, view);
    });
  } finally {
    target.admin.close();
  }
}

function checkFlags(name: string | undefined, flags: TraceFlags, request: readonly string[] | undefined): void {
  if (flags.file !== undefined) {
    if (name !== undefined || flags.local)
      throw usageError("--file shows a saved trace and cannot be combined with an instance");
    if (flags.expression !== undefined) throw usageError("--file cannot be combined with --expression");
    if (request !== undefined) throw usageError("--file cannot be combined with a request after --");
  }
  if (request !== undefined && flags.port === undefined)
    throw usageError("a request after -- needs --port <listener port>");
  if (request === undefined && flags.port !== undefined)
    throw usageError("--port needs a request: … --port 3000 -- http://example.test/path");
  if (request !== undefined && (flags.expression !== undefined || flags.count !== undefined))
    throw usageError("--expression and --count wait for requests and cannot be combined with a request after --");
  if (flags.count !== undefined && !(/^\d{1,4}$/.test(flags.count) && Number(flags.count) >= 1))
    throw usageError(`invalid --count ${flags.count}: expected a number from 1 to 1000`);
}

async function show(
  title: string,
  flags: TraceFlags,
  terminal: Terminal,
  run: (view: TraceView) => Promise<void>,
): Promise<void> {
  const never = new Promise<void>(() => undefined);
  if (flags.raw || !terminal.isInteractive) {
    await run({
      event: (event) => terminal.out(flags.raw ? rawLine(event) : plainLine(event)),
      status: (text) => terminal.err(`${text}\n`),
      closed: never,
    });
    return;
  }
  const { openTraceScreen } = await import("../trace/trace-screen.tsx");
  const screen = openTraceScreen({ title, hasColor: terminal.hasColor });
  let failure: unknown;
  let shown = 0;
  const view: TraceView = {
    event(event) {
      shown += 1;
      screen.event(event);
    },
    status: screen.status,
    closed: screen.closed,
  };
  const running = run(view).then(
    () => screen.complete(),
    (error) => {
      failure = error;
      if (shown === 0) screen.close();
      else screen.status((error as Error).message);
    },
  );
  await screen.closed;
  void running;
  if (failure) throw failure;
}

async function watch(target: Target, flags: TraceFlags, view: TraceView): Promise<void> {
  let seen = 0;
  const open = await openTrace(
    target.admin,
    {
      ...defined({ expression: flags.expression }),
      ...(flags.count === undefined ? {} : { count: Number(flags.count) }),
    },
    {
      armed: () => view.status("waiting for the next request (experimental)"),
      event: (event) => {
        seen += 1;
        view.event(event);
      },
      dropped: view.status,
    },
  );
  const isWhole = await Promise.race([open.ended, view.closed.then(() => true)]);
  open.stop();
  if (seen === 0 && !(await isSettled(view.closed)))
    throw new CliError("the gateway closed the trace before a request arrived");
  if (!isWhole) throw new CliError(BROKEN_OFF);
}

async function inject(
  target: Target,
  injected: ReturnType<typeof parseCurlArguments>,
  port: number,
  view: TraceView,
  terminal: Terminal,
  flags: TraceFlags,
): Promise<void> {
  const requestId = injected.requestId ?? `gwctl-${randomBytes(6).toString("hex")}`;
  const localPort = await target.listenerPort(port);
  const scheme = await schemeOf(target, port);
  let armed: () => void = () => undefined;
  const isArmed = new Promise<void>((resolve) => {
    armed = resolve;
  });
  const open = await openTrace(
    target.admin,
    { expression: `request.headers["x-request-id"] == ${JSON.stringify(requestId)}` },
    { armed: () => armed(), event: view.event, dropped: view.status },
  );
  try {
    await Promise.race([isArmed, open.ended]);
    view.status("sending the request (experimental)");
    const result = await curl(
      curlCommand({ ...injected, port: localPort, scheme, requestId, hasRequestId: injected.requestId !== undefined }),
      terminal,
      { inheritStdin: flags.raw === true || !terminal.isInteractive, until: view.closed },
    );
    const output = printable(`${result.stdout}${result.stderr}`).trim();
    if (output !== "") view.status(output);
    const isWhole = await Promise.race([
      open.ended,
      view.closed.then(() => true),
      new Promise<undefined>((resolve) => terminal.clock.after(TRACE_LIMIT_MS, () => resolve(undefined))),
    ]);
    if (isWhole === false) throw new CliError(BROKEN_OFF);
    if (isWhole === undefined)
      throw new CliError(
        result.code === 0
          ? `the request got a response, but not from a listener of ${target.admin.display}: is --port ${port} one of its listeners?`
          : `curl failed with exit code ${result.code}${output === "" ? "" : ` (${output})`}: is --port ${port} a listener?`,
      );
  } finally {
    open.stop();
  }
}

async function schemeOf(target: Target, port: number): Promise<"http" | "https" | undefined> {
  const { listeners } = await target.admin.json<ListenerDump>(ADMIN_PATHS.configDump, "listeners");
  const found = Array.isArray(listeners) ? listeners.find((listener) => listener?.port === port) : undefined;
  if (found?.protocol === "HTTPS") return "https";
  return found?.protocol === "HTTP" ? "http" : undefined;
}

interface ListenerDump {
  readonly listeners: readonly ({ readonly port?: unknown; readonly protocol?: unknown } | null)[];
}

async function curl(args: readonly string[], terminal: Terminal, options: Omit<ProgramOptions, "environment">) {
  const environment = Object.fromEntries(
    Object.entries(terminal.environment).filter(([name]) => !PROXY_VARIABLE.test(name)),
  );
  try {
    return await runProgram("curl", args, { environment, ...options });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    throw new CliError(
      "curl is not installed; install it, or omit the URL and send the request yourself while gwctl waits",
    );
  }
}

function isSettled(promise: Promise<void>): Promise<boolean> {
  return Promise.race([promise.then(() => true), Promise.resolve(false)]);
}
