/**
 * A provider in the format of Anthropic, which streams a response of 30 events.
 */
import { createServer } from "node:http";

const event = (value) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`;
const EVENTS = [
  event({
    type: "message_start",
    message: {
      id: "msg_bench",
      type: "message",
      role: "assistant",
      model: "claude-sonnet-4-5",
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: 20_000, output_tokens: 1 },
    },
  }),
  event({ type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }),
  ...Array.from({ length: 25 }, (_, i) =>
    event({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: ` word${i} and some more` } }),
  ),
  event({ type: "content_block_stop", index: 0 }),
  event({
    type: "message_delta",
    delta: { stop_reason: "end_turn", stop_sequence: null },
    usage: { output_tokens: 75 },
  }),
  event({ type: "message_stop" }),
];

createServer((req, res) => {
  req.resume();
  req.on("end", () => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    let next = 0;
    const step = () => {
      if (next === EVENTS.length) res.end();
      else {
        res.write(EVENTS[next++]);
        setImmediate(step);
      }
    };
    step();
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
