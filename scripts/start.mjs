/**
 * `npm start`: installs missing packages, builds if the sources have changed, and runs the gateway with its embedded
 * default configuration or with the given arguments: `npm start -- -f config.yaml`. The demo uses other ports if its own
 * are taken.
 */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { isBuilt } from "./build-stamp.mjs";
import { freePort, installIfMissing, root, step } from "./steps.mjs";

installIfMissing();
if (!isBuilt()) step("build", process.execPath, ["scripts/build.mjs"]);

const environment = process.argv.length > 2 ? process.env : await withFreePorts(process.env);
const gateway = spawn(
  process.execPath,
  ["--enable-source-maps", join(root, "dist", "gateway.js"), ...process.argv.slice(2)],
  { stdio: "inherit", env: environment },
);
/** Returns the environment with other ports of the demo where its own are taken. A port that is set stays. */
async function withFreePorts(given) {
  const chosen = { ...given };
  const ports = { PORT: 3000, LLM_PORT: 4000, ADMIN_PORT: 15000 };
  for (const [name, port] of Object.entries(ports)) {
    const other = given[name] ? port : await freePort(port);
    if (other === port) continue;
    chosen[name] = String(other);
    console.log(`Port ${port} is taken, so the demo uses ${other}. To choose another port, set ${name}.`);
    if (name === "ADMIN_PORT") console.log(`For gwctl: export GWCTL_ADMIN_PORT=${other}`);
  }
  return chosen;
}

// In a terminal, signals reach the whole process group; otherwise only this process gets a signal and forwards it.
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"])
  process.on(signal, () => process.stdin.isTTY || gateway.kill(signal));
// npm's shell exits on a signal without forwarding it, so the gateway is stopped when the parent process is gone.
const parent = process.ppid;
const watch = setInterval(() => {
  if (process.ppid === parent) return;
  // Sent once, because a second signal would abort the requests that are draining.
  clearInterval(watch);
  gateway.kill("SIGTERM");
}, 500).unref();
gateway.on("exit", (code, signal) => process.exit(code ?? (signal ? 1 : 0)));
