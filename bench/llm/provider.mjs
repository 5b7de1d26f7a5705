/**
 * An OpenAI-like provider for measurements: a chat answer of about 1 KB, one of 20 KB (`model: large`), or a stream
 * of 100 chunks, each written by itself; `model: open` streams a chunk per second and never ends.
 */
import { createServer } from "node:http";

const chunk = (content) =>
  `data: ${JSON.stringify({ id: "chatcmpl-bench", object: "chat.completion.chunk", created: 1, model: "bench", choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`;
const usage = {
  prompt_tokens: 100,
  completion_tokens: 100,
  total_tokens: 200,
  prompt_tokens_details: { cached_tokens: 0 },
};
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
const words = Array.from({ length: 97 }, (_, i) => chunk(` word${i} and some more of it`));
const end = [
  `data: ${JSON.stringify({ id: "chatcmpl-bench", object: "chat.completion.chunk", created: 1, model: "bench", choices: [{ index: 0, delta: {}, finish_reason: "stop" }] })}\n\n`,
  `data: ${JSON.stringify({ id: "chatcmpl-bench", object: "chat.completion.chunk", created: 1, model: "bench", choices: [], usage })}\n\n`,
  "data: [DONE]\n\n",
];

createServer((req, res) => {
  let asked = "";
  req.on("data", (part) => {
    asked += part.latin1Slice();
  });
  req.on("end", () => {
    if (!asked.includes('"stream":true')) {
      const body = asked.includes('"large"') ? large : small;
      res.writeHead(200, { "content-type": "application/json", "content-length": body.length });
      res.end(body);
      return;
    }
    res.writeHead(200, { "content-type": "text/event-stream" });
    if (asked.includes('"open"')) {
      const timer = setInterval(() => res.write(words[0]), 1000);
      res.write(words[0]);
      res.on("close", () => clearInterval(timer));
      return;
    }
    const parts = [...words, ...end];
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
