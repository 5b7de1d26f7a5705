/**
 * `npm start`: installs missing packages, builds if the sources have changed, and runs the gateway with its embedded
 * default configuration or with the given arguments: `npm start -- -f config.yaml`.
 */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { isBuilt } from "./build-stamp.mjs";
import { installIfMissing, root, step } from "./steps.mjs";

installIfMissing();
if (!isBuilt()) step("build", process.execPath, ["scripts/build.mjs"]);

const gateway = spawn(
  process.execPath,
  ["--enable-source-maps", join(root, "dist", "gateway.js"), ...process.argv.slice(2)],
  { stdio: "inherit" },
);
// The terminal signals the whole group; from elsewhere a signal reaches only this process and is passed on.
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"])
  process.on(signal, () => process.stdin.isTTY || gateway.kill(signal));
// npm's shell dies of a signal without passing it on; whoever ended npm meant the gateway too.
const parent = process.ppid;
const watch = setInterval(() => {
  if (process.ppid === parent) return;
  // Once: a second signal would cut off the requests that the first lets end.
  clearInterval(watch);
  gateway.kill("SIGTERM");
}, 500).unref();
gateway.on("exit", (code, signal) => process.exit(code ?? (signal ? 1 : 0)));
