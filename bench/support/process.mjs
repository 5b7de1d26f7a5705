/**
 * Starts the compared programs, waits until they listen, and stops them by process ID.
 */
import { spawn } from "node:child_process";
import { connect, createServer } from "node:net";

export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Resolves when the port accepts; rejects when the program ends first. */
export async function start(command, args, port, options = {}) {
  const child = spawn(command, args, {
    stdio: ["ignore", "ignore", options.quiet === false ? "inherit" : "pipe"],
    ...options.spawn,
  });
  let errors = "";
  child.stderr?.on("data", (chunk) => {
    errors = (errors + chunk).slice(-2000);
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  let isStopping = false;
  // Whoever measures it must not wait for ever.
  const died = ended.then((code) => {
    if (!isStopping) throw new Error(`${command} ${args.join(" ")} ended (${code}) while it was measured: ${errors}`);
  });
  died.catch(() => undefined);
  for (let attempt = 0; ; attempt++) {
    if (child.exitCode !== null || attempt > 400)
      throw new Error(`${command} ${args.join(" ")} did not start: ${errors}`);
    if (await accepts(port)) break;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  return {
    pid: child.pid,
    port,
    died,
    async stop() {
      isStopping = true;
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), 3000);
      await ended;
      clearTimeout(timer);
    },
  };
}

function accepts(port) {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
