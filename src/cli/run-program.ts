/**
 * Runs another program: curl for inject mode, a credential plugin of a kubeconfig. Always without a shell.
 */
import { spawn } from "node:child_process";

const MAX_OUTPUT_BYTES = 1024 * 1024;

export interface ProgramRun {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface ProgramOptions {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Whether the program may read what the user types or pipes. */
  readonly inheritStdin: boolean;
}

/** Rejects with `code: "ENOENT"` if the program is not installed. */
export function runProgram(command: string, args: readonly string[], options: ProgramOptions): Promise<ProgramRun> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      shell: false,
      windowsHide: true,
      env: options.environment as NodeJS.ProcessEnv,
      stdio: [options.inheritStdin ? "inherit" : "ignore", "pipe", "pipe"],
    });
    const stdout = collect(child.stdout);
    const stderr = collect(child.stderr);
    child.once("error", reject);
    child.once("close", (code) => resolve({ code: code ?? 1, stdout: stdout(), stderr: stderr() }));
  });
}

function collect(stream: NodeJS.ReadableStream | null): () => string {
  const chunks: Buffer[] = [];
  let bytes = 0;
  stream?.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= MAX_OUTPUT_BYTES) chunks.push(chunk);
  });
  return () => Buffer.concat(chunks).toString();
}
