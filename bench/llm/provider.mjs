/**
 * A provider for benchmarks in the format of OpenAI. It returns a chat response of 1 KB, of 20 KB (`model: large`),
 * or a stream of 100 chunks. `model: open` streams one chunk per second without an end. The second argument makes
 * every nth request fail with 503.
 */
import { createServer } from "node:http";
import { events, usage } from "./events.mjs";

const answer = (words) =>
  Buffer.from(
    JSON.stringify({
      id: "chatcmpl-bench",
      object: "chat.completion",
      created: 1,
      model: "bench",
      choices: [{ index: 0, message: { role: "assistant", content: "word ".repeat(words) }, finish_reason: "stop" }],
      usage,
    }),
  );
const small = answer(130);
const large = answer(4000);
const parts = events();
const failEvery = Number(process.argv[3] ?? 0);
let requests = 0;

createServer((req, res) => {
  let asked = "";
  req.on("data", (part) => {
    asked += part.latin1Slice();
  });
  req.on("end", () => {
    requests += 1;
    if (failEvery > 0 && requests % failEvery === 0) {
      res.writeHead(503, { "content-type": "application/json" });
      res.end(JSON.stringify({ error: { message: "The model is overloaded.", type: "server_error" } }));
      return;
    }
    if (!asked.includes('"stream":true')) {
      const body = asked.includes('"large"') ? large : small;
      res.writeHead(200, { "content-type": "application/json", "content-length": body.length });
      res.end(body);
      return;
    }
    res.writeHead(200, { "content-type": "text/event-stream" });
    if (asked.includes('"open"')) {
      const timer = setInterval(() => res.write(parts[0]), 1000);
      res.write(parts[0]);
      res.on("close", () => clearInterval(timer));
      return;
    }
    let next = 0;
    const step = () => {
      if (next === parts.length) res.end();
      else {
        res.write(parts[next++]);
        setImmediate(step);
      }
    };
    step();
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
