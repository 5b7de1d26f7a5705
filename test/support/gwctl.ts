/**
 * gwctl as a process, as users run it: the compiled file, its own streams, its exit code.
 */
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

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
  readonly cwd?: string;
  readonly input?: string;
}

export function startGwctl(args: readonly string[], options: GwctlOptions = {}): RunningGwctl {
  const child = spawn(process.execPath, [BINARY, ...args], {
    cwd: options.cwd,
    env: { PATH: process.env.PATH, HOME: "/nonexistent", ...options.environment },
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

export function gwctl(args: readonly string[], options?: GwctlOptions): Promise<GwctlResult> {
  return startGwctl(args, options).result;
}
