/**
 * Finds a port for a server that starts later or starts again. The ports that systems give to `port: 0` begin at 32768,
 * so other tests never get it; each process has its own twenty.
 */
import { createServer } from "node:net";

const FIRST = 12_000;
const PORTS_PER_PROCESS = 20;
const BLOCKS = 1_000;

const first = FIRST + (process.pid % BLOCKS) * PORTS_PER_PROCESS;
let next = 0;

export async function freePort(): Promise<number> {
  for (let tried = 0; tried < PORTS_PER_PROCESS; tried++) {
    const port = first + (next++ % PORTS_PER_PROCESS);
    if (await isFree(port)) return port;
  }
  throw new Error(`no port from ${first} to ${first + PORTS_PER_PROCESS - 1} is free`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, () => server.close(() => resolve(true)));
  });
}
