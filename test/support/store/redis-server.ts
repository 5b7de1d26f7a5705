/**
 * Runs a redis-server on a free port without files. Tests that need it are skipped if it is not installed.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { freePort } from "../free-port.ts";

const program = (process.env.PATH ?? "")
  .split(delimiter)
  .map((folder) => join(folder, "redis-server"))
  .find((file) => existsSync(file));

/** For the options of a test. */
export const skipWithoutRedis: string | false = program === undefined && "redis-server is not installed";

export interface RedisServer {
  readonly url: string;
  readonly pid: number;
  /** Ends it; `start` brings it back on the same port, empty. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Stops answering without closing anything, and goes on. */
  freeze(): void;
  thaw(): void;
  close(): Promise<void>;
}

export async function startRedis(...options: string[]): Promise<RedisServer> {
  if (program === undefined) throw new Error("redis-server is not installed");
  const file = program;
  const folder = mkdtempSync(join(tmpdir(), "redis-"));
  const port = await freePort();
  let child: ChildProcess | undefined;
  const start = async (): Promise<void> => {
    const args = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder, ...options];
    const started = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
    child = started;
    await new Promise<void>((resolve, reject) => {
      let text = "";
      started.stdout?.on("data", (chunk: Buffer) => {
        text += chunk.toString();
        if (text.includes("Ready to accept connections")) resolve();
      });
      started.once("exit", () => reject(new Error(`redis-server ended: ${text}`)));
    });
  };
  const stop = async (): Promise<void> => {
    const running = child;
    child = undefined;
    if (running === undefined) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    running.kill("SIGKILL");
    await ended;
  };
  await start();
  return {
    url: `redis://127.0.0.1:${port}`,
    get pid() {
      return child?.pid ?? 0;
    },
    start,
    stop,
    freeze: () => void child?.kill("SIGSTOP"),
    thaw: () => void child?.kill("SIGCONT"),
    async close() {
      await stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
