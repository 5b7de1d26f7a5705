/**
 * Runs the container commands of the pages with a real engine. `docker run` and `docker compose up` stay in the
 * foreground and are stopped when the gateway has responded.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { root } from "../steps.mjs";

const PATIENCE_MS = 300_000;
const STAYS = /\bdocker (?:run|compose up)\b/;
const CONFIG = "gateways: { default: { port: 3000 } }\nroutes: [{ policies: { directResponse: { body: ok } } }]\n";

export function obstacle() {
  const { status } = spawnSync("docker", ["info"], { stdio: "ignore", timeout: 20_000 });
  return status === 0
    ? undefined
    : "no container engine answers; test/scenario/deploy.test.ts runs the image's steps without one";
}

export async function testContainers(commands) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-containers-"));
  mkdirSync(join(folder, "conf"));
  writeFileSync(join(folder, "conf", "config.yaml"), CONFIG);
  try {
    for (const written of commands) {
      // The page mounts ./conf of the reader's folder.
      const command = written.replace("./conf", join(folder, "conf"));
      console.log(`$ ${command}`);
      if (STAYS.test(command)) await whileItRuns(command);
      else if (spawnSync("sh", ["-c", command], { cwd: root, stdio: "inherit" }).status !== 0)
        throw new Error(`${command} failed`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function whileItRuns(command) {
  const child = spawn("sh", ["-c", `exec ${command}`.replace("exec cd", "cd")], {
    cwd: root,
    stdio: "inherit",
    detached: true,
  });
  try {
    const end = Date.now() + PATIENCE_MS;
    for (;;) {
      const answer = await fetch("http://127.0.0.1:3000/").catch(() => undefined);
      if (answer) return;
      if (child.exitCode !== null || Date.now() > end) throw new Error(`${command}: the gateway does not answer`);
      await sleep(500);
    }
  } finally {
    // Docker's program ends its container, or all of a compose file, on SIGINT.
    process.kill(-child.pid, "SIGINT");
    if (child.exitCode === null) await new Promise((resolve) => child.once("exit", resolve));
  }
}
