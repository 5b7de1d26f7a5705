/**
 * Implements the stdio transport, which runs a server as a child process with one JSON-RPC message per line. To stop
 * the child, the gateway closes stdin and then escalates to SIGTERM and SIGKILL.
 */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import { listChild } from "../../base/child-registry.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { contain } from "../../base/errors.ts";
import { fileDescriptors } from "../../base/file-descriptors.ts";
import { InOrder } from "../../base/in-order.ts";
import { LineSplitter, LineTooLong } from "../../base/line-splitter.ts";
import { type MessageReservation, type ServerMessages, SMALL_MESSAGE_BYTES } from "../../base/memory-budget.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES } from "../../base/sliced-work.ts";
import { borrowingReader, readOpened } from "../../http/h1/socket-reads.ts";
import { singleLine } from "../../json/json-text.ts";
import type { Logger } from "../../record/log/logger.ts";
import { withoutSecrets } from "../../record/trace/redact.ts";
import { type ParsedMessages, parseServerTextInSteps, reportBroken } from "./server-messages.ts";
import type { Channel, ChannelHandlers, Outgoing } from "./transport.ts";

const MESSAGE = peerInput("mcp-server/stdio-message");
const LINES = peerInput("mcp-server/stdio-lines");

/** Hears that the process was told to exit, and that it has exited. */
export interface ProcessEnd {
  ending(): void;
  released(): void;
}

export function openStdioChannel(options: StdioProcessOptions, handlers: ChannelHandlers, end: ProcessEnd): Channel {
  const logger: Logger = options.logger;
  const shown = (text: string): string => withoutSecrets(text, options.secrets);
  let isClosed = false;
  let isPaused = false;
  let ignoredLines = 0;
  const ignore = (reason: string, text: string): void => {
    ignoredLines += 1;
    if (ignoredLines > 10) return;
    const fields = { target: options.name, reason, line: shown(text).slice(0, 200) };
    // The first ignored line is logged at `info`, so that operators notice a server that logs to stdout.
    if (ignoredLines === 1) logger.info("ignored a line on stdout: MCP servers must log to stderr", fields);
    else logger.debug("ignored a line on stdout", fields);
  };
  const address = `stdio:${options.name}`;
  const send = (message: Outgoing): void => {
    const line = singleLine(message.text);
    message.wire?.attempt(address, { over: "stdio", line, hasResult: message.wireId !== undefined });
    child.write(line, message.isAlone);
  };
  const read = (messages: ParsedMessages, text: string): void => {
    if (isClosed) return;
    if (messages.length === 0) ignore("a line on stdout is no JSON-RPC message", text);
    for (const message of messages) {
      if (message.kind !== "broken") handlers.message(message, undefined);
      else {
        ignore(message.reason, text);
        reportBroken(message, handlers, send);
      }
    }
  };
  const follow = (): void => {
    if (isPaused || lines.isBusy) child.pause();
    else child.resume();
  };
  const lines = new InOrder({
    busy: follow,
    idle: follow,
    failed: () => child.kill("was stopped because its output could not be handled"),
    isOver: () => isClosed,
  });
  const child = new StdioProcess(options, {
    line(text) {
      if (isClosed) return;
      lines.run(parseServerTextInSteps(MESSAGE, text), text.length <= SLICED_BYTES, (messages) => read(messages, text));
    },
    afterParsing: (parsed) => lines.afterwards(parsed),
    exited(reason) {
      void stop();
      lines.afterwards(() => {
        if (!isClosed) handlers.closed(reason);
      });
    },
  });
  const stop = async (): Promise<void> => {
    end.ending();
    await child.stop();
    end.released();
  };
  return {
    address,
    isPipe: true,
    get isOverloaded() {
      return child.isOverloaded;
    },
    setProtocol: () => undefined,
    send,
    abandon: () => undefined,
    pause() {
      isPaused = true;
      follow();
    },
    resume() {
      isPaused = false;
      follow();
    },
    close() {
      isClosed = true;
      return stop();
    },
    stderrTail: () => child.stderrLines(),
    detail: () => ({
      pid: child.pid,
      memoryBytes: child.memoryBytes(),
      stderr: child.stderrLines(),
      ...(ignoredLines > 0 ? { ignoredLines } : {}),
    }),
  };
}

/** New calls fail while more input than this is queued for the child. */
const MAX_QUEUED_BYTES = 4 * 1024 * 1024;
/** The delay between closing stdin and SIGTERM, and between SIGTERM and SIGKILL. */
const GRACE_MS = 2_000;
/** Limits the time to read the remaining output after the child exits, because a grandchild may keep the pipe open. */
const LAST_LINES_MS = 50;
const PAGE_BYTES = 4096;

export interface StdioProcessOptions {
  readonly name: string;
  readonly cmd: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly secrets: readonly string[];
  readonly maxLineBytes: number;
  readonly maxWriteBytes: number;
  readonly messages: ServerMessages;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface StdioHandlers {
  line(text: string): void;
  /** Calls back after the received lines are parsed. */
  afterParsing?(parsed: () => void): void;
  /** Called once, after the last line. `reason` completes the sentence "the process …". */
  exited(reason: string): void;
}

export class StdioProcess {
  readonly #options: StdioProcessOptions;
  readonly #handlers: StdioHandlers;
  readonly #splitter: LineSplitter;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable> | undefined;
  #stderr: StderrTail | undefined = undefined;
  #room: MessageReservation | undefined = undefined;
  #parsing: MessageReservation | undefined = undefined;
  #isPaused = false;
  #batch = "";
  #isBatching = false;
  #exitReason: string | undefined = undefined;
  #isOver = false;
  #timer: Timer | undefined = undefined;
  #whenGone: (() => void)[] | undefined = undefined;
  #isGone = false;
  #wasKilled = false;
  #unlist: (() => void) | undefined = undefined;

  constructor(options: StdioProcessOptions, handlers: StdioHandlers) {
    this.#options = options;
    this.#handlers = handlers;
    this.#splitter = new LineSplitter(LINES.upTo(options.maxLineBytes), (line) => {
      if (!this.#isOver) this.#handlers.line(line);
    });
    try {
      fileDescriptors.checkChild();
      const child = spawn(options.cmd, [...options.args], {
        cwd: options.cwd,
        env: { ...options.env },
        stdio: ["pipe", "pipe", "pipe"],
        shell: false,
        // The child leads a process group, so that signals also reach the descendants that stay in the group.
        detached: process.platform !== "win32",
        windowsHide: true,
      });
      // If the gateway is out of file descriptors (EMFILE), `spawn` returns no streams and emits an error later.
      const hasStreams = (child.stdout as Readable | undefined) !== undefined;
      this.#child = hasStreams ? child : undefined;
      if (child.pid !== undefined) this.#unlist = listChild(child.pid);
      if (hasStreams) this.#listen(child);
      else child.once("error", (error) => this.#over(this.#startFailure(error)));
    } catch (error) {
      this.#child = undefined;
      queueMicrotask(() => this.#over(this.#startFailure(error as NodeJS.ErrnoException)));
    }
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get isOverloaded(): boolean {
    return this.#queuedBytes > MAX_QUEUED_BYTES;
  }

  get #queuedBytes(): number {
    return (this.#child?.stdin.writableLength ?? 0) + this.#batch.length;
  }

  /**
   * Writes a line immediately and batches the lines that follow before the next event-loop iteration. With `isAlone`,
   * it starts no batch.
   */
  write(line: string, isAlone = false): void {
    if (this.#isOver) return;
    // Stops a child that, for example, keeps sending requests without reading the responses.
    if (this.#queuedBytes > 2 * MAX_QUEUED_BYTES + this.#options.maxWriteBytes) {
      this.kill("was stopped because it does not read its input");
      return;
    }
    if (this.#isBatching) {
      this.#batch += `${line}\n`;
      return;
    }
    this.#child?.stdin.write(`${line}\n`);
    if (isAlone) return;
    this.#isBatching = true;
    setImmediate(this.#flush);
  }

  pause(): void {
    this.#isPaused = true;
    this.#child?.stdout.pause();
  }

  resume(): void {
    this.#isPaused = false;
    if (this.#room?.isWaiting !== true) this.#child?.stdout.resume();
  }

  stderrLines(): string[] {
    return this.#stderr?.lines() ?? [];
  }

  memoryBytes(): number | undefined {
    if (this.pid === undefined || this.#isGone) return undefined;
    try {
      const pages = Number(readFileSync(`/proc/${this.pid}/statm`, "latin1").split(" ")[1]);
      return Number.isFinite(pages) ? pages * PAGE_BYTES : undefined;
    } catch {
      return undefined;
    }
  }

  stop(): Promise<void> {
    if (this.#isGone) return Promise.resolve();
    const gone = new Promise<void>((resolve) => {
      this.#whenGone ??= [];
      this.#whenGone.push(resolve);
    });
    if (this.#timer === undefined && this.#exitReason === undefined) {
      this.#flush();
      this.#child?.stdin.end();
      this.#timer = this.#options.clock.after(GRACE_MS, () => {
        this.#signal("SIGTERM");
        this.#timer = this.#options.clock.after(GRACE_MS, () => this.#signal("SIGKILL"));
      });
    }
    return gone;
  }

  kill(reason: string): void {
    this.#signal("SIGKILL");
    this.#over(reason);
  }

  #listen(child: ChildProcessByStdio<Writable, Readable, Readable>): void {
    // An exception while handling the output stops only this child.
    const giveUp = (): void => this.kill("was stopped because its output could not be handled");
    const received = (chunk: Buffer): boolean => {
      contain(() => {
        try {
          this.#splitter.push(chunk);
          this.#charge(this.#splitter.heldBytes);
        } catch (error) {
          if (!(error instanceof LineTooLong)) throw error;
          this.kill(`was stopped because ${error.message}`);
        }
      }, giveUp);
      return true;
    };
    if (!readOpened(child.stdout as Socket, borrowingReader(received))) child.stdout.on("data", received);
    child.stderr.on("data", (chunk: Buffer) =>
      contain(() => {
        this.#stderr ??= new StderrTail(this.#options);
        this.#stderr.push(chunk);
      }, giveUp),
    );
    child.stdin.on("error", ignore);
    child.stdout.on("error", ignore);
    child.stderr.on("error", ignore);
    child.once("error", (error) => {
      if (child.pid === undefined) this.#over(this.#startFailure(error));
    });
    child.once("exit", (code, signal) =>
      contain(() => {
        this.#exitReason = signal === null ? `exited with code ${code}` : `was terminated by ${signal}`;
        this.#sweepGroup();
        this.#options.clock.after(LAST_LINES_MS, () => this.#over(this.#exitReason ?? "exited"));
      }, giveUp),
    );
    child.once("close", () => this.#over(this.#exitReason ?? "closed its streams"));
  }

  #charge(heldBytes: number): void {
    if (this.#isOver) return;
    if (heldBytes <= SMALL_MESSAGE_BYTES) {
      this.#releaseParsed();
      return;
    }
    this.#room ??= this.#options.messages.open({
      resume: () => {
        if (!this.#isPaused && !this.#isOver) this.#child?.stdout.resume();
      },
      // The next message starts after this line, so the gateway cannot skip the line without reading it.
      reject: (cause) =>
        this.kill(
          cause === "stalled"
            ? "was stopped because it took too long to print a long line while other servers waited for memory"
            : "was stopped because it printed a long line while too many others waited for memory",
        ),
    });
    if (!this.#room.resize(heldBytes)) this.#child?.stdout.pause();
  }

  #releaseParsed(): void {
    const room = this.#room;
    this.#room = undefined;
    if (room === undefined) return;
    room.received();
    this.#parsing = room;
    if (this.#handlers.afterParsing) this.#handlers.afterParsing(() => room.release());
    else room.release();
  }

  readonly #flush = (): void => {
    this.#isBatching = false;
    if (this.#batch === "" || this.#isOver) return;
    const batch = this.#batch;
    this.#batch = "";
    this.#child?.stdin.write(batch);
  };

  #over(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#room?.release();
    this.#parsing?.release();
    this.#batch = "";
    let fullReason = reason;
    contain(() => {
      const last = this.#stderr?.likelyCause();
      if (last !== undefined) fullReason = `${reason}: ${last.slice(0, 200)}`;
    }, ignore);
    // A grandchild may keep its ends of the pipes open, so the gateway closes its own ends.
    this.#child?.stdout.destroy();
    this.#child?.stderr.destroy();
    if (this.pid === undefined) this.#gone();
    this.#handlers.exited(fullReason);
  }

  #sweepGroup(): void {
    this.#timer?.cancel();
    // After SIGKILL, no other signal is needed.
    if (this.#wasKilled || !this.#signal("SIGTERM")) {
      this.#gone();
      return;
    }
    this.#timer = this.#options.clock.after(GRACE_MS, () => {
      this.#signal("SIGKILL");
      this.#gone();
    });
  }

  #gone(): void {
    this.#isGone = true;
    this.#unlist?.();
    this.#timer?.cancel();
    const waiting = this.#whenGone;
    this.#whenGone = undefined;
    if (waiting) for (const resolve of waiting) resolve();
  }

  #signal(signal: NodeJS.Signals): boolean {
    const pid = this.pid;
    if (pid === undefined || this.#isGone) return false;
    if (signal === "SIGKILL") this.#wasKilled = true;
    try {
      if (process.platform === "win32") return this.#child?.kill(signal) ?? false;
      return process.kill(-pid, signal);
    } catch {
      return false;
    }
  }

  #startFailure(error: NodeJS.ErrnoException): string {
    const { cmd, cwd } = this.#options;
    const where = cwd === undefined ? "" : ` (in ${cwd})`;
    return `could not be started: ${error.message}${where}${startHint(error.code, cmd, cwd)}`;
  }
}

/** ENOENT can mean a missing program, a missing working directory, or arguments in `cmd`. */
function startHint(code: string | undefined, cmd: string, cwd: string | undefined): string {
  if (code === "EACCES") return ": it is not executable";
  if (code !== "ENOENT") return "";
  if (cwd !== undefined && !existsSync(cwd)) return ": its working directory does not exist";
  if (/\s/.test(cmd)) return ": `cmd` is one program, put its arguments in `args`";
  if (cmd.startsWith("~")) return ": `~` is not expanded, use the full path";
  return cmd.includes("/") ? ": no such file" : ": it is not on the gateway's PATH";
}

function ignore(): void {
  // These errors need no reaction.
}

const KEPT_LINES = 20;
const MAX_LINE_CHARS = peerInput("mcp-server/stdio-log").maxBytes;
const LOGGED_LINES_PER_SECOND = 50;
/**
 * Matches lines that Node and npm print below the cause of a crash, such as stack frames, closing brackets, versions,
 * and log paths.
 */
const NOISE = /^(?:\s+at |[\s\])},]*$|Node\.js v\d|npm (?:error|ERR!) A complete log of this run)/;
const CAUSE =
  /(?:Error|Exception)(?: \[\w+\])?:|\berror:|\bfatal\b|\bcannot\b|\bcould not\b|\bnot found\b|\bmissing\b|\brequired\b|\bdenied\b/i;

export interface StderrTailOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly secrets: readonly string[];
}

export class StderrTail {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #target: string;
  readonly #secrets: readonly string[];
  readonly #lines: string[] = [];
  #partial = "";
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #loggedInWindow = 0;
  #dropped = 0;

  constructor({ clock, logger, name, secrets }: StderrTailOptions) {
    this.#clock = clock;
    this.#logger = logger;
    this.#target = name;
    this.#secrets = secrets;
  }

  push(chunk: Buffer): void {
    const parts = (this.#partial + chunk.toString("utf8")).split("\n");
    this.#partial = (parts.pop() ?? "").slice(-MAX_LINE_CHARS);
    for (const part of parts) this.#line(part);
  }

  lines(): string[] {
    return this.#partial.trim() === "" ? [...this.#lines] : [...this.#lines, this.#redacted(this.#partial)];
  }

  likelyCause(): string | undefined {
    const lines = this.lines().filter((line) => !NOISE.test(line));
    return lines.findLast((line) => CAUSE.test(line)) ?? lines.at(-1);
  }

  #redacted(line: string): string {
    return withoutSecrets(line, this.#secrets);
  }

  #line(raw: string): void {
    const line = this.#redacted(raw).trimEnd().slice(0, MAX_LINE_CHARS);
    if (line === "") return;
    this.#lines.push(line);
    if (this.#lines.length > KEPT_LINES) this.#lines.shift();
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#windowStartMs >= 1000) {
      if (this.#dropped > 0)
        this.#logger.warn("stderr lines were not logged", { target: this.#target, lines: this.#dropped });
      this.#windowStartMs = nowMs;
      this.#loggedInWindow = 0;
      this.#dropped = 0;
    }
    if (this.#loggedInWindow < LOGGED_LINES_PER_SECOND) {
      this.#loggedInWindow += 1;
      this.#logger.info(line, { target: this.#target, stream: "stderr" });
    } else this.#dropped += 1;
  }
}

export type Environment = Readonly<Record<string, string | undefined>>;

const ALLOWED = new Set([
  ...["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "PWD"],
  ...["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"],
  ...["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"],
  ...[
    "NVM_DIR",
    "NVM_BIN",
    "VOLTA_HOME",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONIOENCODING",
  ],
  ...[
    "APPDATA",
    "LOCALAPPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
  ],
  ...["SYSTEMROOT", "USERNAME", "USERPROFILE", "WINDIR", "PROCESSOR_ARCHITECTURE"],
]);

const ALLOWED_PREFIXES = ["LC_", "XDG_", "NPM_CONFIG_", "UV_", "PIP_"];

const CREDENTIAL = /AUTH|TOKEN|PASSWORD|PASSWD|SECRET|USERNAME$/;

const LIKELY_SECRET = /KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH/;

export function childSecrets(
  own: Environment,
  options: { readonly env: Readonly<Record<string, string>>; readonly inheritEnv: boolean },
): string[] {
  const inherited = options.inheritEnv ? Object.keys(own).filter((name) => LIKELY_SECRET.test(name.toUpperCase())) : [];
  return [...Object.values(options.env), ...inherited.flatMap((name) => own[name] ?? [])];
}

/**
 * Builds the child's environment from the configured variables and an allowlist of the gateway's variables, because the
 * child is untrusted code. With `inheritEnv`, it also contains the gateway's other variables.
 */
export function childEnvironment(
  own: Environment,
  options: { readonly env: Readonly<Record<string, string>>; readonly inheritEnv: boolean },
): Record<string, string> {
  const result: Record<string, string> = {};
  for (const name of Object.keys(own)) {
    const value = own[name];
    if (value !== undefined && (options.inheritEnv || isAllowed(name, value))) result[name] = value;
  }
  return { ...result, ...options.env };
}

function isAllowed(name: string, value: string): boolean {
  // A shell that the child starts may import an exported shell function.
  if (value.startsWith("()")) return false;
  const upper = name.toUpperCase();
  if (ALLOWED.has(upper)) return true;
  return ALLOWED_PREFIXES.some((prefix) => upper.startsWith(prefix)) && !CREDENTIAL.test(upper);
}
