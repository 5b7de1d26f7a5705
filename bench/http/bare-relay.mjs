/**
 * The baseline for streams: copies bytes between two sockets without parsing them.
 */
import { connect, createServer } from "node:net";

const [port, backendPort] = process.argv.slice(2).map(Number);
const buffer = Buffer.allocUnsafeSlow(64 * 1024);

createServer({ noDelay: true }, (client) => {
  const callback = (size) => {
    client.write(buffer.latin1Slice(0, size), "latin1");
    return true;
  };
  const backend = connect({ port: backendPort, host: "127.0.0.1", noDelay: true, onread: { buffer, callback } });
  client.on("data", (chunk) => backend.write(chunk));
  client.on("close", () => backend.destroy());
  for (const socket of [client, backend]) socket.on("error", () => undefined);
}).listen(port, "127.0.0.1");
