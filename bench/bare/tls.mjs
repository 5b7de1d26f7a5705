/**
 * The baseline for TLS: a server that passes the request and the response on, without checks or limits, and closes the
 * connection.
 */
import { readFileSync } from "node:fs";
import { createServer } from "node:tls";
import { createBackend } from "./backend-connections.mjs";

const [port, backendPort, cert, key] = process.argv.slice(2);
const send = createBackend(Number(backendPort));

createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (socket) => {
  let request = "";
  socket.on("data", (chunk) => {
    request += chunk.latin1Slice();
    if (request.endsWith("\r\n\r\n"))
      send(request.replace("connection: close\r\n", ""), (response) => socket.end(response, "latin1"));
  });
  socket.on("error", () => undefined);
}).listen(Number(port), "127.0.0.1");
