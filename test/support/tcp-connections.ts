/** Servers and clients of raw TCP and TLS connections. */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { TestContext } from "node:test";
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from "node:tls";
import { certificates } from "./tls/certificates.ts";

/** Answers each connection with its name and the received bytes until the client ends. */
export async function echo(t: TestContext, name: string, isTls = false): Promise<string> {
  const sockets = new Set<Socket>();
  const serve = (socket: Socket): void => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.write(`${name}:`);
    socket.pipe(socket);
  };
  const server = isTls
    ? createTlsServer({ ...certificates.server, allowHalfOpen: true }, serve)
    : createServer({ allowHalfOpen: true }, serve);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Sends the bytes, ends, and returns the response, or `refused` if the connection was closed without one. */
export function ask(socket: Socket | TLSSocket, bytes: Buffer | string = "hello", isHttp = false): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const done = (): void => resolve(Buffer.concat(chunks).toString("latin1") || "refused");
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("error", done);
    socket.on("close", done);
    // An HTTP client that ends its side no longer waits for a response.
    if (isHttp) {
      socket.write(bytes);
      socket.once("end", () => socket.end());
    } else socket.end(bytes);
  });
}

export const plain = (port: number): Socket => connect({ host: "127.0.0.1", port, allowHalfOpen: true });
export const tls = (port: number, servername: string | undefined, more: object = {}): TLSSocket =>
  connectTls({
    host: "127.0.0.1",
    port,
    // The types do not have this option of sockets.
    ...{ allowHalfOpen: true },
    rejectUnauthorized: false,
    ...(servername === undefined ? {} : { servername }),
    ...more,
  });
