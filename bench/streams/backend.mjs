/**
 * A backend with streams that do not end: each sends one event at once and then one per second. Twenty groups of streams
 * take turns, so that the load is even.
 */
import { createServer } from "node:http";

const EVENT = `data: ${JSON.stringify({ delta: "y".repeat(180) })}\n\n`;
const GROUPS = 20;

const groups = Array.from({ length: GROUPS }, () => new Set());
let turn = 0;

createServer((req, res) => {
  req.resume();
  const group = groups[turn++ % GROUPS];
  res.writeHead(200, { "content-type": "text/event-stream" });
  res.write(EVENT);
  group.add(res);
  res.on("close", () => group.delete(res));
}).listen(Number(process.argv[2]), "127.0.0.1");

let tick = 0;
setInterval(() => {
  for (const res of groups[tick++ % GROUPS]) res.write(EVENT);
}, 1000 / GROUPS);
