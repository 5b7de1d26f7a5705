/**
 * A TCP relay in front of the gateway, like a load balancer. Its address exists before the gateway starts, because
 * the configuration contains it.
 */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export interface FrontDoor {
  readonly url: string;
  /** Connections go to this port of the loopback interface from now on. */
  leadTo(port: number): void;
  close(): Promise<void>;
}

export async function openFrontDoor(): Promise<FrontDoor> {
  let target = 0;
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const upstream = connect(target, "127.0.0.1");
    for (const [one, other] of [
      [socket, upstream],
      [upstream, socket],
    ] as const) {
      sockets.add(one);
      one.pipe(other);
      one.on("error", () => other.destroy());
      one.on("close", () => sockets.delete(one));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    leadTo(port) {
      target = port;
    },
    close() {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
