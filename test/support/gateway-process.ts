/**
 * Runs the bundled gateway in a separate process and captures its output. `npm test` builds the bundle first.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

const BUNDLE = join(process.cwd(), "dist", "gateway.js");
/** Beside this file in whatever folder the tests were compiled to. */
const COMPILED = fileURLToPath(new URL("../../src/bin/gateway.js", import.meta.url));
const PATIENCE_MS = 150_000;

export interface Exit {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface GatewayProcess {
  readonly child: ChildProcess;
  stdout(): string;
  /** Resolves with all of standard output once it contains the text. */
  logged(text: string): Promise<string>;
  /** The port of a gateway, from its log line. */
  port(gateway?: string): Promise<number>;
  /** The admin interface's URL, from its log line. */
  adminUrl(): Promise<string>;
  readonly exited: Promise<Exit>;
}

export interface ProcessOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly stdout?: "pipe" | number;
  readonly cwd?: string;
  /** Runs the compiled files instead of the bundle. */
  readonly compiled?: boolean;
  /** Another form of the program, instead of the bundle: an installed one, or the single executable. */
  readonly command?: readonly string[];
  /** Descriptors after the standard ones, from 3 on. */
  readonly descriptors?: readonly number[];
  /** Runs as another user, where the test may. */
  readonly uid?: number;
  /** Flags of Node, before the program. */
  readonly nodeFlags?: readonly string[];
  /** The system's limit of open files, for the process. */
  readonly maxOpenFiles?: number;
  /** How long to wait for what it logs. */
  readonly patienceMs?: number;
}

export function startGatewayProcess(
  t: TestContext,
  args: readonly string[],
  options: ProcessOptions = {},
): GatewayProcess {
  const program = options.compiled ? COMPILED : BUNDLE;
  if (!existsSync(program)) throw new Error(`${program} is missing: run \`npm run build\` first`);
  const command = [...(options.command ?? [process.execPath, ...(options.nodeFlags ?? []), program]), ...args];
  // Node raises the soft limit to the hard one; the shell lowers both.
  const limit = ["sh", "-c", `ulimit -n ${options.maxOpenFiles} && exec "$@"`, "sh"];
  const [file = "", ...rest] = options.maxOpenFiles === undefined ? command : [...limit, ...command];
  const child = spawn(file, rest, {
    stdio: ["pipe", options.stdout ?? "pipe", "pipe", ...(options.descriptors ?? [])],
    env: { PATH: process.env.PATH ?? "", ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid }),
  });
  t.after(() => void child.kill("SIGKILL"));
  let stdout = "";
  let stderr = "";
  const looks = new Set<() => void>();
  child.stdout?.on("data", (chunk) => {
    stdout += String(chunk);
    for (const look of [...looks]) look();
  });
  child.stderr?.on("data", (chunk) => {
    stderr += String(chunk);
  });
  child.stdin?.on("error", () => undefined);
  child.stdin?.end(options.stdin ?? "");
  const exited = new Promise<Exit>((resolve) =>
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr })),
  );

  function find<Found>(what: string, look: () => Found | undefined): Promise<Found> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`no ${what} in:\n${stdout}\n${stderr}`)),
        options.patienceMs ?? PATIENCE_MS,
      );
      const once = (): void => {
        const found = look();
        if (found === undefined) return;
        clearTimeout(timer);
        looks.delete(once);
        resolve(found);
      };
      looks.add(once);
      once();
      void exited.then(() => {
        clearTimeout(timer);
        reject(new Error(`ended without ${what}:\n${stdout}\n${stderr}`));
      });
    });
  }

  return {
    child,
    exited,
    stdout: () => stdout,
    logged: (text) => find(JSON.stringify(text), () => (stdout.includes(text) ? stdout : undefined)),
    port: async (gateway = "default") =>
      find(`port of ${gateway}`, () => {
        const found = new RegExp(`listening gateway=${gateway} url=\\S+:(\\d+)`).exec(stdout);
        return found ? Number(found[1]) : undefined;
      }),
    adminUrl: () => find("admin URL", () => /admin interface ui=(\S+)\/ui/.exec(stdout)?.[1]),
  };
}
