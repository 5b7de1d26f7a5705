/**
 * The backend of all benchmarks: a small JSON response, a stream of 100 chunks, or `/large?<bytes>`. It accepts
 * bodies of any size.
 */
import { createServer } from "node:http";

const SMALL = Buffer.from(JSON.stringify({ ok: true, text: "x".repeat(280) }));
const CHUNK = Buffer.from(`data: ${JSON.stringify({ delta: "y".repeat(180) })}\n\n`);

const BLOCK = Buffer.alloc(256 * 1024, "z");

function sendLarge(res, bytes) {
  let left = bytes;
  const more = () => {
    while (left > 0) {
      left -= BLOCK.length;
      if (!res.write(BLOCK) && left > 0) {
        res.once("drain", more);
        return;
      }
    }
    res.end();
  };
  more();
}

createServer((req, res) => {
  req.resume();
  req.on("end", () => {
    if (req.url.startsWith("/large?")) {
      sendLarge(res, Number(req.url.slice("/large?".length)));
      return;
    }
    if (req.url !== "/stream") {
      res.writeHead(200, { "content-type": "application/json", "content-length": SMALL.length });
      res.end(SMALL);
      return;
    }
    res.writeHead(200, { "content-type": "text/event-stream" });
    let sent = 0;
    const next = () => {
      if (sent++ === 100) res.end();
      else {
        res.write(CHUNK);
        setImmediate(next);
      }
    };
    next();
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
