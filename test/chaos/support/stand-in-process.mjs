/**
 * One stand-in in a process of its own: started, killed, started again on the same port, stopped and continued.
 */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("./stand-in.mjs", import.meta.url));

export async function openStandIn(role, port, message = {}) {
  let child;
  const start = async () => {
    child = fork(PROGRAM, [role, String(port)], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    const own = child;
    await new Promise((resolve, reject) => {
      own.once("message", resolve);
      own.once("exit", (code) => reject(new Error(`${role} ended with ${code}`)));
    });
    own.send(message);
  };
  const kill = async () => {
    const own = child;
    const ended = new Promise((resolve) => own.once("exit", resolve));
    own.kill("SIGKILL");
    await ended;
  };
  await start();
  return {
    start,
    kill,
    signal: (name) => child.kill(name),
    set: (mood) => child.send({ mood }),
  };
}
