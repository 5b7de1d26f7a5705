/**
 * The baseline for HTTP: a minimal Node.js proxy with node:http and undici, without routes, checks, logs or timeouts.
 */
import { createServer } from "node:http";
import { Pool } from "undici";

const pool = new Pool(`http://127.0.0.1:${process.argv[3]}`, {
  connections: 4096,
  pipelining: 1,
  headersTimeout: 0,
  bodyTimeout: 0,
});

createServer((req, res) => {
  const hasBody = req.method !== "GET" && req.method !== "HEAD";
  pool.dispatch(
    { path: req.url, method: req.method, headers: withoutConnection(req.rawHeaders), body: hasBody ? req : null },
    {
      onConnect(abort) {
        res.on("close", () => res.writableFinished || abort());
      },
      onHeaders(status, headers, resume) {
        res.on("drain", resume);
        res.writeHead(status, headers.map(String));
        return true;
      },
      onData: (chunk) => res.write(chunk),
      onComplete: () => res.end(),
      onError: () => res.destroy(),
    },
  );
}).listen(Number(process.argv[2]), "127.0.0.1");

function withoutConnection(raw) {
  const headers = [];
  for (let i = 0; i < raw.length; i += 2) if (raw[i].toLowerCase() !== "connection") headers.push(raw[i], raw[i + 1]);
  return headers;
}
