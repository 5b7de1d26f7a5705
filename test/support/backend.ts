/**
 * An HTTP server for tests that returns what it received, or responds as the test specifies.
 */
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";

export interface TestBackend {
  /** `127.0.0.1:<port>`, as a configuration names it. */
  readonly host: string;
  readonly port: number;
  /** What arrived, in order. */
  readonly received: ReceivedRequest[];
  readonly server: Server;
  close(): Promise<void>;
}

export interface ReceivedRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly rawHeaders: string[];
  readonly body: string;
}

/** Without a listener it answers 200 with what it received, as JSON. */
export async function startBackend(listener?: RequestListener): Promise<TestBackend> {
  const received: ReceivedRequest[] = [];
  const server = createServer((req, res) => {
    if (listener) listener(req, res);
    else echo(req, res, received);
  });
  // Sockets that were upgraded are no connections of the server any more, and yet keep it from closing.
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    host: `127.0.0.1:${port}`,
    port,
    received,
    server,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

function echo(req: IncomingMessage, res: ServerResponse, received: ReceivedRequest[]): void {
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => chunks.push(chunk));
  req.on("end", () => {
    const request: ReceivedRequest = {
      method: req.method ?? "",
      url: req.url ?? "",
      headers: req.headers,
      rawHeaders: req.rawHeaders,
      body: Buffer.concat(chunks).toString(),
    };
    received.push(request);
    res.writeHead(200, { "content-type": "application/json" });
    res.end(JSON.stringify(request));
  });
}
