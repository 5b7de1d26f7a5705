/**
 * Whether a port is free. Threads bind it in a way that lets others of this user bind it too, so that a second gateway
 * would silently get half of the connections: the main thread asks first as anybody would.
 */
import { createServer } from "node:net";

/** Rejects with the system's error if the address cannot be bound. */
export function probePort(address: string | undefined, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", reject);
    server.listen({ port, ...(address === undefined ? {} : { host: address }) }, () => server.close(() => resolve()));
  });
}
