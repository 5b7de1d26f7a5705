import { createServer, type Server, type Socket } from "node:net";
import type { TestContext } from "node:test";

/** `onRequest` gets the socket and how many requests came before. */
export async function rawBackend(
  t: TestContext,
  onRequest: (socket: Socket, count: number) => void,
): Promise<{ host: string; connections: Socket[] }> {
  const connections: Socket[] = [];
  let count = 0;
  const server: Server = createServer((socket) => {
    connections.push(socket);
    socket.on("error", () => undefined);
    let held = "";
    socket.on("data", (chunk) => {
      held += chunk.toString("latin1");
      for (let end = held.indexOf("\r\n\r\n"); end >= 0; end = held.indexOf("\r\n\r\n")) {
        held = held.slice(end + 4);
        onRequest(socket, count++);
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of connections) socket.destroy();
    server.close();
  });
  const { port } = server.address() as { port: number };
  return { host: `127.0.0.1:${port}`, connections };
}
