/**
 * The child processes of the gateways. `spawn` starts a program of the simulation, whose standard streams are
 * connections of the network.
 */
import childProcess from "node:child_process";
import { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import type { Network, Side } from "./network.ts";
import { OUTSIDE } from "./scheduler.ts";
import { socketOn, systemError } from "./sockets.ts";

/** A child as its program sees it. */
export interface Child {
  readonly stdin: Side;
  readonly stdout: Side;
  readonly stderr: Side;
  readonly isRunning: boolean;
  exit(code: number): void;
}

export type Program = (child: Child) => void;

class ChildProcess extends EventEmitter {
  readonly pid: number;
  /** The process that started it. */
  readonly parent: string;
  readonly stdin: Socket;
  readonly stdout: Socket;
  readonly stderr: Socket;
  readonly #network: Network;
  readonly #sides: readonly [Side, Side, Side];
  isRunning = true;

  constructor(pid: number, network: Network) {
    super();
    this.pid = pid;
    this.parent = network.scheduler.process;
    this.#network = network;
    const pipes = ["in", "out", "err"].map((name) => network.pipe(`${this.parent}>child ${pid} ${name}`));
    const [stdin, stdout, stderr] = pipes.map(({ ours }) => socketOn(ours, network.scheduler)) as [
      Socket,
      Socket,
      Socket,
    ];
    this.stdin = stdin;
    this.stdout = stdout;
    this.stderr = stderr;
    this.#sides = pipes.map(({ theirs }) => theirs) as [Side, Side, Side];
  }

  start(program: Program): void {
    const [stdin, stdout, stderr] = this.#sides;
    const isRunning = (): boolean => this.isRunning;
    program({
      stdin,
      stdout,
      stderr,
      get isRunning() {
        return isRunning();
      },
      exit: (code) => this.end(code, null),
    });
  }

  end(code: number | null, signal: string | null): void {
    if (!this.isRunning) return;
    this.isRunning = false;
    for (const side of this.#sides) side.close();
    let open = 3;
    for (const stream of [this.stdin, this.stdout, this.stderr])
      stream.once("close", () => {
        open -= 1;
        if (open === 0) this.emit("close", code, signal);
      });
    const exited = (): void => {
      this.emit("exit", code, signal);
      this.stdin.destroy();
    };
    this.#network.scheduler.after(0, exited, this.parent);
  }
}

export class Children {
  readonly #network: Network;
  readonly #programs: Readonly<Record<string, Program>>;
  readonly #running = new Map<number, ChildProcess>();
  #count = 0;

  constructor(network: Network, programs: Readonly<Record<string, Program>>) {
    this.#network = network;
    this.#programs = programs;
  }

  /** The children of these processes that run. */
  of(isMeant: (parent: string) => boolean): number[] {
    return [...this.#running.values()]
      .filter((child) => child.isRunning && isMeant(child.parent))
      .map(({ pid }) => pid);
  }

  /** Replaces the functions of Node that start and signal processes. */
  replaceFunctions(): void {
    const spawn = (name: string): ChildProcess => {
      const program = this.#programs[name];
      if (program === undefined) throw systemError("spawn", "ENOENT");
      this.#count += 1;
      const child = new ChildProcess(100_000 + this.#count, this.#network);
      this.#running.set(child.pid, child);
      this.#network.scheduler.after(0, () => child.start(program), OUTSIDE);
      return child;
    };
    const kill = (pid: number, signal: string): true => {
      const child = this.#running.get(Math.abs(pid));
      if (child?.isRunning !== true) throw systemError("kill", "ESRCH");
      this.#network.scheduler.after(0, () => child.end(null, signal), OUTSIDE);
      return true;
    };
    Object.assign(childProcess, { spawn });
    Object.assign(process, { kill });
  }
}
