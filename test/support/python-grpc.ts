/**
 * Runs gRPC services in Python, as an implementation of gRPC in another language. Set `GRPC_PYTHON` to the interpreter of
 * an environment with the packages grpcio and grpcio-tools.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";

const python = process.env.GRPC_PYTHON ?? "python3";
const hasGrpc = spawnSync(python, ["-c", "import grpc, grpc_tools"]).status === 0;

export const skipWithoutGrpc = hasGrpc ? false : "set GRPC_PYTHON to a Python with grpcio and grpcio-tools";

/** Returns the first line that the script prints, which is its port. */
export async function startPython(t: TestContext, script: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-python-"));
  const child = spawn(python, [basename(script), folder], {
    cwd: resolve(dirname(script)),
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
  });
  const ended = once(child, "close");
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  });
  const [port] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  return port;
}
