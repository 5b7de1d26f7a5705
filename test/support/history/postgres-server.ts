/**
 * Runs a PostgreSQL server on a free port in a temporary folder. Tests that need it are skipped if it is not installed.
 * PostgreSQL does not run as root, so a test that runs as root starts it as another user.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../free-port.ts";

const VERSIONS = "/usr/lib/postgresql";
/** `nobody` on Debian. */
const OTHER_USER = 65_534;

const bin = existsSync(VERSIONS)
  ? readdirSync(VERSIONS)
      .map((version) => join(VERSIONS, version, "bin"))
      .find((folder) => existsSync(join(folder, "initdb")))
  : undefined;

/** For the options of a test. */
export const skipWithoutPostgres: string | false = bin === undefined && "PostgreSQL is not installed";

export interface PostgresServer {
  /** Creates an empty database. */
  database(name: string): string;
  /** Ends it at once; `start` brings it back on the same port, with its data. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Stops responding without closing anything, and goes on. */
  freeze(): void;
  thaw(): void;
  close(): Promise<void>;
}

export interface PostgresOptions {
  /** The server does not keep this process alive, and ends with it. */
  readonly endsWithProcess?: boolean;
}

export async function startPostgres({ endsWithProcess = false }: PostgresOptions = {}): Promise<PostgresServer> {
  if (bin === undefined) throw new Error("PostgreSQL is not installed");
  const folder = mkdtempSync(join(tmpdir(), "postgres-"));
  const user = process.getuid?.() === 0 ? { uid: OTHER_USER, gid: OTHER_USER } : {};
  if ("uid" in user) chownSync(folder, OTHER_USER, OTHER_USER);
  const data = join(folder, "data");
  const run = (program: string, ...args: string[]): void => {
    execFileSync(join(bin, program), args, { ...user, cwd: folder, stdio: "pipe" });
  };
  run("initdb", "-D", data, "-U", "gateway", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C");
  const port = await freePort();
  let child: ChildProcess | undefined;

  const start = async (): Promise<void> => {
    const settings = ["fsync=off", `port=${port}`, "listen_addresses=127.0.0.1", `unix_socket_directories=${folder}`];
    const args = ["-D", data, ...settings.flatMap((setting) => ["-c", setting])];
    const started = spawn(join(bin, "postgres"), args, { ...user, cwd: folder, stdio: ["ignore", "ignore", "pipe"] });
    child = started;
    await new Promise<void>((resolve, reject) => {
      let text = "";
      started.stderr?.on("data", (chunk: Buffer) => {
        text += chunk.toString();
        if (text.includes("ready to accept connections")) resolve();
      });
      started.once("exit", () => reject(new Error(`postgres ended: ${text}`)));
    });
  };

  const stop = async (): Promise<void> => {
    const running = child;
    child = undefined;
    if (running === undefined) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    // An immediate shutdown, which also ends the processes of its connections.
    running.kill("SIGQUIT");
    await ended;
  };

  /** Sends a signal to the server and to the processes of its connections. */
  const signalAll = (signal: NodeJS.Signals): void => {
    const pid = child?.pid;
    if (pid === undefined) return;
    const children = execFileSync("ps", ["--ppid", String(pid), "-o", "pid="], { encoding: "utf8" });
    for (const one of [pid, ...children.trim().split(/\s+/).map(Number)]) process.kill(one, signal);
  };

  await start();
  if (endsWithProcess) {
    child?.unref();
    (child?.stderr as Socket | undefined)?.unref();
    process.once("exit", () => {
      // Waits for the processes of its connections, which would write to the folder.
      run("pg_ctl", "stop", "-D", data, "-m", "immediate");
      rmSync(folder, { recursive: true, force: true });
    });
  }
  return {
    database(name) {
      run("createdb", "-h", "127.0.0.1", "-p", String(port), "-U", "gateway", name);
      return `postgres://gateway@127.0.0.1:${port}/${name}`;
    },
    start,
    stop,
    freeze: () => signalAll("SIGSTOP"),
    thaw: () => signalAll("SIGCONT"),
    async close() {
      signalAll("SIGCONT");
      await stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
