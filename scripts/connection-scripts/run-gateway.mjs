/**
 * Runs a gateway in its own process, in front of the backend of a script run. Reports its address, whether it exited,
 * and the resources it still holds after all connections are closed.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LOG_SHOWN = 3_000;
/** Of 50 ms: HTTP/2 clients that vanish are noticed after 45 s. */
const LEFT_LOOKS = 1_200;

export async function runGateway(program, backendPort) {
  const folder = mkdtempSync(join(tmpdir(), "connection-scripts-"));
  const config = join(folder, "config.yaml");
  writeFileSync(
    config,
    `config: { adminAddr: "127.0.0.1:0", logging: { level: "info,access=off" } }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - { name: refuse, matches: [{ path: { pathPrefix: /refuse } }], policies: { directResponse: { status: 403, body: no } } }
  - { name: backend, matches: [{ path: { pathPrefix: /b } }], backends: [{ host: "127.0.0.1:${backendPort}" }] }
`,
  );
  const child = spawn(process.execPath, [program, "-f", config], { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  let crash;
  let errors = "";
  child.stdout.on("data", (chunk) => (log += chunk));
  child.stderr.on("data", (chunk) => {
    log += chunk;
    errors = (errors + chunk).slice(-LOG_SHOWN);
  });
  // Waits until its streams have closed too, because the last output often contains the reason.
  const exited = new Promise((resolve) =>
    child.once("close", (code, signal) => resolve(code === null ? `signal ${signal}` : `exit code ${code}`)),
  );
  void exited.then((how) => (crash ??= how));
  const port = Number(await inLog(/listening gateway=default url=\S+:(\d+)/));
  const adminUrl = await inLog(/admin interface ui=(\S+)\/ui/);
  return { port, pid: child.pid, hasEnded: () => crash !== undefined, whatIsLeft, stop };

  /** Returns the problem after all connections were closed, if any. */
  async function* whatIsLeft() {
    let left;
    for (let i = 0; i < LEFT_LOOKS; i++) {
      left = (await (await fetch(`${adminUrl}/memory`)).json()).parts.connections;
      if (left.connections === 0 && left.requests === 0) break;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    if (left.connections !== 0 || left.requests !== 0) yield `left open: ${JSON.stringify(left)}`;
    const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
    for (const [line] of metrics.matchAll(/^gateway_unexpected_errors_total.* [1-9]\d*$/gm))
      yield `${line}\n${log.slice(-LOG_SHOWN)}`;
  }

  /** Returns the problem with its exit: too early or abnormal. `atOnce` skips the drain. */
  async function stop(atOnce = false) {
    // The exit of a process may be reported after its connections close, so a process that does not respond may be
    // exiting.
    await Promise.race([exited, isAnswering()]);
    const early = crash;
    child.kill(atOnce ? "SIGKILL" : "SIGTERM");
    const how = await exited;
    rmSync(folder, { recursive: true, force: true });
    const words = `\nits last lines:\n${log.slice(-LOG_SHOWN)}\non stderr:\n${errors || "nothing"}`;
    if (early !== undefined) return `the gateway ended with ${early}${words}`;
    return atOnce || how === "exit code 0" ? undefined : `after SIGTERM the gateway ended with ${how}${words}`;
  }

  /** Resolves when the process is confirmed to be running, or after ten seconds. */
  async function isAnswering() {
    const signal = AbortSignal.timeout(10_000);
    const isAlive = await fetch(`${adminUrl}/memory`, { signal }).then(
      ({ ok }) => ok,
      () => false,
    );
    if (!isAlive && !signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
  }

  async function inLog(pattern) {
    for (;;) {
      const found = pattern.exec(log);
      if (found) return found[1];
      if (crash !== undefined) throw new Error(`the gateway did not start: ${log}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}
