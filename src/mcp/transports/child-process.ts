/**
 * One child process that speaks line by line over its standard streams: the only file that starts processes.
 * It leads a process group of its own, so that what it starts itself ends with it. It never outlives its owner:
 * the end of stdin asks it to leave, then TERM, then KILL go to the whole group; if the gateway itself is
 * killed, the system closes stdin. No shell is involved anywhere.
 */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import { listChild } from "../../base/child-registry.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { contain } from "../../base/contain.ts";
import { type MessagePool, type MessageRoom, SMALL_MESSAGE_BYTES } from "../../base/memory-budget.ts";
import { borrowingReader, readOpened } from "../../base/one-read-buffer.ts";
import { checkSpareDescriptors } from "../../base/spare-descriptors.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { LineSplitter, LineTooLong } from "./line-splitter.ts";
import { StderrTail } from "./stderr-tail.ts";

/** A child that does not read its stdin gets no more than this queued; then calls fail instead of piling up. */
const MAX_QUEUED_BYTES = 4 * 1024 * 1024;
/** Between the end of stdin and TERM, and between TERM and KILL. */
const GRACE_MS = 2_000;
/** A child that has exited may have left lines in the pipe; a grandchild may keep the pipe open for ever. */
const LAST_LINES_MS = 50;
const PAGE_BYTES = 4096;

export interface StdioProcessOptions {
  /** For log lines. */
  readonly name: string;
  readonly cmd: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  /** What it was given and may print: taken out of what is logged and told of it. */
  readonly secrets: readonly string[];
  /** The longest line that it may print, and the longest message that it is sent. */
  readonly maxLineBytes: number;
  readonly maxWriteBytes: number;
  /** Where long lines are charged. */
  readonly messages: MessagePool;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface StdioHandlers {
  line(text: string): void;
  /** Calls back once all lines so far are parsed; default: they are. */
  afterParsing?(parsed: () => void): void;
  /** Once, when nothing more will come; `reason` completes the sentence "the process …". */
  exited(reason: string): void;
}

export class StdioProcess {
  readonly #options: StdioProcessOptions;
  readonly #handlers: StdioHandlers;
  readonly #splitter: LineSplitter;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable> | undefined;
  #stderr: StderrTail | undefined = undefined;
  /** From the first long line on, until it is parsed. */
  #room: MessageRoom | undefined = undefined;
  #parsing: MessageRoom | undefined = undefined;
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
    this.#splitter = new LineSplitter((line) => {
      if (!this.#isOver) this.#handlers.line(line);
    }, options.maxLineBytes);
    try {
      checkSpareDescriptors();
      const child = spawn(options.cmd, [...options.args], {
        cwd: options.cwd,
        env: { ...options.env },
        stdio: ["pipe", "pipe", "pipe"],
        shell: false,
        // A session and process group of its own: signals reach everything the child starts.
        detached: process.platform !== "win32",
        windowsHide: true,
      });
      // Without descriptors to spare (EMFILE) there are no streams and no process, only an error in the next turn.
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

  /** The child reads slower than we write, and what waits for it has reached the limit. */
  get isClogged(): boolean {
    return this.#queuedBytes > MAX_QUEUED_BYTES;
  }

  get #queuedBytes(): number {
    return (this.#child?.stdin.writableLength ?? 0) + this.#batch.length;
  }

  /**
   * The first line of a turn of the event loop is written at once, the others together: 2.3 times less work under load.
   * `isAlone`: no others are to be expected, and so none are waited for.
   */
  write(line: string, isAlone = false): void {
    if (this.#isOver) return;
    // Calls are refused before; a child that asks and asks without reading our answers would fill our memory.
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

  /** Stops reading the child's output; it will block once the pipe is full. */
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

  /** Resident memory of the child, where the system tells. */
  memoryBytes(): number | undefined {
    if (this.pid === undefined || this.#isGone) return undefined;
    try {
      const pages = Number(readFileSync(`/proc/${this.pid}/statm`, "latin1").split(" ")[1]);
      return Number.isFinite(pages) ? pages * PAGE_BYTES : undefined;
    } catch {
      return undefined;
    }
  }

  /** Asks, then forces. Resolves when no process of the group is left. */
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

  /** At once, for a child that broke the rules. */
  kill(reason: string): void {
    this.#signal("SIGKILL");
    this.#over(reason);
  }

  #listen(child: ChildProcessByStdio<Writable, Readable, Readable>): void {
    // A defect of ours costs this child and not the others.
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
    // A child that is gone or does not read makes writes fail; its exit says the rest.
    child.stdin.on("error", ignore);
    child.stdout.on("error", ignore);
    child.stderr.on("error", ignore);
    child.once("error", (error) => {
      if (child.pid === undefined) this.#over(this.#startFailure(error));
    });
    // What this throws would keep Node from telling us that the streams are closed.
    child.once("exit", (code, signal) =>
      contain(() => {
        this.#exitReason = signal === null ? `exited with code ${code}` : `was terminated by ${signal}`;
        this.#sweepGroup();
        this.#options.clock.after(LAST_LINES_MS, () => this.#over(this.#exitReason ?? "exited"));
      }, giveUp),
    );
    child.once("close", () => this.#over(this.#exitReason ?? "closed its streams"));
  }

  /** Stops reading while there is no room for more of a long line. */
  #charge(heldBytes: number): void {
    if (this.#isOver) return;
    if (heldBytes <= SMALL_MESSAGE_BYTES) {
      this.#releaseParsed();
      return;
    }
    this.#room ??= this.#options.messages.open(() => {
      if (!this.#isPaused && !this.#isOver) this.#child?.stdout.resume();
    });
    if (!this.#room.resize(heldBytes)) this.#child?.stdout.pause();
  }

  #releaseParsed(): void {
    const room = this.#room;
    this.#room = undefined;
    if (room === undefined) return;
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
    let told = reason;
    contain(() => {
      const last = this.#stderr?.lastWords();
      if (last !== undefined) told = `${reason}: ${last.slice(0, 200)}`;
    }, ignore);
    // A grandchild may hold the other ends for ever: nothing of it is read any more.
    this.#child?.stdout.destroy();
    this.#child?.stderr.destroy();
    if (this.pid === undefined) this.#gone();
    this.#handlers.exited(told);
  }

  /** The leader has exited: whatever it left behind in its group follows. */
  #sweepGroup(): void {
    this.#timer?.cancel();
    // After KILL there is nothing more to do; who is still listed waits for the system to clear him away.
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

  /** False if there is nobody left to get it. */
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

/** What mends it. The system says ENOENT for a missing program, a missing folder, and a whole command line alike. */
function startHint(code: string | undefined, cmd: string, cwd: string | undefined): string {
  if (code === "EACCES") return ": it is not executable";
  if (code !== "ENOENT") return "";
  if (cwd !== undefined && !existsSync(cwd)) return ": its working directory does not exist";
  if (/\s/.test(cmd)) return ": `cmd` is one program, put its arguments in `args`";
  if (cmd.startsWith("~")) return ": `~` is not expanded, use the full path";
  return cmd.includes("/") ? ": no such file" : ": it is not on the gateway's PATH";
}

function ignore(): void {
  // Nothing to do: see above.
}
