/**
 * Runs another program without a shell, such as curl for inject mode or a credential plugin of a kubeconfig.
 */
import { spawn } from "node:child_process";
import { fileDescriptors } from "./file-descriptors.ts";

const MAX_OUTPUT_CHARS = 1024 * 1024;

export interface ProgramRun {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface ProgramOptions {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly inheritStdin: boolean;
  onStderr?(text: string): void;
  /** The program is killed when this promise resolves. */
  readonly until?: Promise<void>;
}

/** Rejects with `code: "ENOENT"` if the program is not installed. */
export function runProgram(command: string, args: readonly string[], options: ProgramOptions): Promise<ProgramRun> {
  return new Promise((resolve, reject) => {
    fileDescriptors.checkChild();
    const child = spawn(command, args, {
      shell: false,
      windowsHide: true,
      env: options.environment as NodeJS.ProcessEnv,
      stdio: [options.inheritStdin ? "inherit" : "ignore", "pipe", "pipe"],
    });
    const stdout = collect(child.stdout);
    const stderr = collect(child.stderr);
    child.stderr?.setEncoding("utf8").on("data", (text: string) => options.onStderr?.(text));
    child.once("error", reject);
    void options.until?.then(() => child.kill());
    child.once("close", (code) => resolve({ code: code ?? 1, stdout: stdout(), stderr: stderr() }));
  });
}

function collect(stream: NodeJS.ReadableStream | null): () => string {
  let text = "";
  stream?.setEncoding("utf8").on("data", (part: string) => {
    if (text.length + part.length <= MAX_OUTPUT_CHARS) text += part;
  });
  return () => text;
}
