/**
 * Everything that a run needs: the gateway in a process of its own, and stand-ins for all that it talks to. As root the
 * configuration and the log are on a small disk that can be filled, and names come from a server of ours; without,
 * these faults are left out and the run says so.
 */
import { spawn, spawnSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "../../../bench/support/process.mjs";
import { configText } from "./config.mjs";
import { openInspector } from "./inspector.mjs";
import { NAME, openNameServer } from "./name-server.mjs";
import { processesMarked } from "./process-attributes.mjs";
import { openStandIn } from "./stand-in-process.mjs";
import { createTokens } from "./tokens.mjs";
import { openWeakLink } from "./weak-link.mjs";

const ROOT = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));
const DISK_SIZE = "16m";
const ROLES = ["web", "mcp", "llm", "llm2", "keys"];

export async function openWorld({ hasHistory = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-chaos-"));
  const disk = join(folder, "disk");
  mkdirSync(disk);
  const missing = [];
  const hasDisk =
    process.getuid() === 0 &&
    spawnSync("mount", ["-t", "tmpfs", "-o", `size=${DISK_SIZE}`, "tmpfs", disk]).status === 0;
  if (!hasDisk) missing.push("a disk of its own (needs root)");
  const names = await openNameServer().catch(() => undefined);
  if (names === undefined) missing.push("a name server (needs port 53)");

  const ports = {};
  for (const name of ["gateway", "admin", ...ROLES]) ports[name] = await freePort();
  const tokens = createTokens();
  const standIns = {};
  const links = {};
  for (const role of ROLES) {
    standIns[role] = await openStandIn(role.replace(/\d$/, ""), ports[role], { keys: tokens.keySet });
    links[role] = await openWeakLink(ports[role]);
  }
  const mark = `chaos-${process.pid}`;
  const file = join(disk, "config.yaml");
  const text = (note) =>
    configText({
      ports,
      links: Object.fromEntries(ROLES.map((role) => [role, links[role].port])),
      webHost: names === undefined ? "127.0.0.1" : NAME,
      mark,
      // The small disk has no room for the history.
      historyFolder: hasHistory ? join(folder, "history") : undefined,
      note,
    });
  writeFileSync(file, text("as it began"));
  const log = join(disk, "gateway.log");
  const gateway = await startGateway({ file, log, folder, resolverConfig: names?.resolverConfig });
  await until("the gateway is ready", async () => (await fetch(`http://127.0.0.1:${ports.admin}/healthz/ready`)).ok);

  return {
    gateway,
    url: `http://127.0.0.1:${ports.gateway}`,
    port: ports.gateway,
    adminUrl: `http://127.0.0.1:${ports.admin}`,
    standIns,
    links,
    names,
    tokens,
    mark,
    missing,
    config: { file, text },
    disk: hasDisk ? disk : undefined,
    log: () => readFileSync(log, "utf8"),
    async close() {
      gateway.inspector.close();
      gateway.isEnding = true;
      gateway.child.kill("SIGTERM");
      const isEnded = await Promise.race([gateway.exited.then(() => true), pause(15_000).then(() => false)]);
      if (!isEnded) gateway.child.kill("SIGKILL");
      const orphans = processesMarked(mark).filter(({ pid }) => pid !== gateway.child.pid);
      for (const { pid } of orphans) process.kill(pid, "SIGKILL");
      for (const role of ROLES) {
        links[role].close();
        await standIns[role].kill();
      }
      names?.close();
      if (hasDisk) spawnSync("umount", [disk]);
      rmSync(folder, { recursive: true, force: true });
      return { isEnded, orphans: orphans.length };
    },
  };
}

async function startGateway({ file, log, folder, resolverConfig }) {
  const output = openSync(log, "a");
  const program = [process.execPath, "--inspect=127.0.0.1:0", join(ROOT, "dist", "gateway.js"), "-f", file];
  let command = program;
  if (resolverConfig !== undefined) {
    const resolver = join(folder, "resolv.conf");
    writeFileSync(resolver, resolverConfig);
    // A mount of its own hides the system's resolver from the gateway alone.
    command = ["unshare", "-m", "sh", "-c", `mount --bind ${resolver} /etc/resolv.conf && exec "$@"`, "sh", ...program];
  }
  const child = spawn(command[0], command.slice(1), {
    stdio: ["ignore", output, "pipe"],
    env: { PATH: process.env.PATH },
  });
  closeSync(output);
  const gateway = { child, isEnding: false, crash: undefined, inspector: undefined, errors: "" };
  gateway.exited = new Promise((resolve) =>
    child.once("exit", (code, signal) => {
      if (!gateway.isEnding) gateway.crash = `code ${code}, signal ${signal}: ${gateway.errors}`;
      resolve();
    }),
  );
  child.stderr.on("data", (chunk) => {
    gateway.errors = (gateway.errors + chunk).slice(-4000);
  });
  await until("the inspector listens", () => /ws:\/\/\S+/.test(gateway.errors) || child.exitCode !== null);
  gateway.inspector = await openInspector(/ws:\/\/\S+/.exec(gateway.errors)[0]);
  return gateway;
}

export function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

export async function until(what, holds, patienceMs = 20_000) {
  for (const end = Date.now() + patienceMs; Date.now() < end; await pause(50)) {
    if (await Promise.resolve(holds()).catch(() => false)) return true;
    // `holds` may throw while things start.
  }
  throw new Error(`still not: ${what}`);
}
