/**
 * Runs gwctl and captures its output and exit code, either in this process, which is faster, or in a separate process
 * for tests of streams, signals and folders.
 */
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { systemClock } from "../../src/base/clock.ts";
import { runGwctl } from "../../src/cli/gwctl.ts";

/** Beside this file in whatever folder the tests were compiled to. */
const BINARY = fileURLToPath(new URL("../../src/bin/gwctl.js", import.meta.url));

export interface GwctlResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunningGwctl {
  readonly child: ChildProcessWithoutNullStreams;
  readonly result: Promise<GwctlResult>;
  /** Resolves when standard error contains the text. */
  said(text: string): Promise<void>;
}

export interface GwctlOptions {
  readonly environment?: Readonly<Record<string, string>>;
  /** Its folder, which only a process of its own can have. */
  readonly cwd?: string;
  readonly input?: string;
  /** The width of the terminal. The default is none, as in a pipe. */
  readonly columns?: number;
}

export function startGwctl(args: readonly string[], options: GwctlOptions = {}): RunningGwctl {
  const child = spawn(process.execPath, [BINARY, ...args], {
    cwd: options.cwd,
    env: environmentOf(options),
  });
  const stdout: Buffer[] = [];
  let stderr = "";
  const waiting = new Set<() => void>();
  child.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
    for (const check of waiting) check();
  });
  // A program that ends at once takes no input.
  child.stdin.on("error", () => undefined);
  child.stdin.end(options.input ?? "");
  const result = new Promise<GwctlResult>((resolve) => {
    child.once("close", (code) => resolve({ code, stdout: Buffer.concat(stdout).toString(), stderr }));
  });
  return {
    child,
    result,
    said: (text) =>
      new Promise((resolve, reject) => {
        const check = (): void => {
          if (stderr.includes(text)) resolve();
        };
        waiting.add(check);
        check();
        void result.then(() => reject(new Error(`gwctl ended without saying ${text}: ${stderr}`)));
      }),
  };
}

export async function gwctl(args: readonly string[], options: GwctlOptions = {}): Promise<GwctlResult> {
  if (options.cwd !== undefined) return startGwctl(args, options).result;
  let stdout = "";
  let stderr = "";
  const err = (text: string): void => {
    stderr += text;
  };
  const running = runGwctl(args, {
    out: (text) => {
      stdout += text;
    },
    err,
    isInteractive: false,
    hasColor: false,
    columns: options.columns,
    environment: environmentOf(options),
    clock: systemClock,
    readStdin: () => options.input ?? "",
  });
  // As `src/bin/gwctl.ts` ends.
  const code = await running.catch((error) => {
    err(`gwctl: ${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  });
  return { code, stdout, stderr };
}

function environmentOf({ environment }: GwctlOptions): Readonly<Record<string, string>> {
  return { PATH: process.env.PATH ?? "", HOME: "/nonexistent", ...environment };
}
