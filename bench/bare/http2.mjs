/**
 * The baseline for HTTP/2: a server that forwards each stream as an HTTP/1.1 request, without checks or limits.
 */
import { createServer } from "node:http2";
import { createBackend } from "./backend-connections.mjs";

const [port, backendPort] = process.argv.slice(2).map(Number);
const send = createBackend(backendPort);

createServer()
  .on("stream", (stream, _headers, _flags, raw) => {
    let request = `GET / HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n`;
    for (let i = 0; i < raw.length; i += 2) if (raw[i][0] !== ":") request += `${raw[i]}: ${raw[i + 1]}\r\n`;
    send(`${request}\r\n`, (response, bodyStart) => {
      stream.respond({
        ":status": 200,
        "content-type": "application/json",
        "content-length": response.length - bodyStart,
      });
      stream.end(response.slice(bodyStart), "latin1");
    });
    stream.on("error", () => undefined);
    stream.resume();
  })
  .listen(port, "127.0.0.1");
