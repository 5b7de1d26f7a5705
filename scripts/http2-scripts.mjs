/**
 * Sends random HTTP/2 frames and header lists, including ones that no library writes, to a gateway in its own process.
 * No script may crash or hang it, reach the backend changed, or get another request's response.
 * `node scripts/http2-scripts.mjs --count 100000 --seed 1` (after `npm run build`); `--only 4711` repeats one.
 */
import { connect } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startBackend } from "./connection-scripts/backend.mjs";
import { FLAG, frame, frameReader, number, opening, TYPE } from "./connection-scripts/http2-frames.mjs";
import { HTTP2_KINDS, messageOf } from "./connection-scripts/http2-kinds.mjs";
import { runGateway } from "./connection-scripts/run-gateway.mjs";
import { randomOf } from "./random.mjs";

const MAX_MESSAGES = 8;
const MAX_SHOWN = 10;
/** Finished scripts whose requests are still known. */
const REMEMBERED = 4_000;

const { values: flags } = parseArgs({
  options: {
    count: { type: "string", default: "5000" },
    seed: { type: "string", default: "1" },
    parallel: { type: "string", default: "32" },
    "hang-seconds": { type: "string", default: "20" },
    only: { type: "string" },
    /** Only requests that must get a response. */
    valid: { type: "boolean", default: false },
    /** Does not wait until the gateway has noticed who is gone. */
    leave: { type: "boolean", default: false },
    gateway: { type: "string", default: join(import.meta.dirname ?? "scripts", "..", "dist", "gateway.js") },
  },
});
const NAMES = Object.fromEntries(Object.entries(TYPE).map(([name, type]) => [type, name]));
const seed = Number(flags.seed);
const kinds = Object.keys(HTTP2_KINDS).filter((kind) => !flags.valid || HTTP2_KINDS[kind].from === "backend");
/** Connections that continue test more than those that end, so messages that may end them are drawn less often. */
const drawn = kinds.flatMap((kind) =>
  Array(HTTP2_KINDS[kind].isFatal ? 1 : HTTP2_KINDS[kind].from === "backend" ? 12 : 4).fill(kind),
);
const counts = { scripts: 0, messages: 0, forwarded: 0, answered: 0 };
const complaints = [];
const open = new Map();

const backend = await startBackend(onForwarded, complain);
const gateway = await runGateway(flags.gateway, backend.port);
const first = flags.only === undefined ? 0 : Number(flags.only);
const end = flags.only === undefined ? Number(flags.count) : first + 1;
let next = first;
await Promise.all(Array.from({ length: Number(flags.parallel) }, worker));
if (!gateway.hasEnded() && !flags.leave) for await (const left of gateway.whatIsLeft()) complain(left);
const fault = await gateway.stop(flags.leave);
if (fault !== undefined) complaints.unshift(`${fault}\nopen then: ${[...open.keys()].slice(-40).join(" ")}`);
console.log(
  `${counts.scripts} connections, ${counts.messages} messages of ${kinds.length} kinds, ${counts.forwarded} forwarded, ${counts.answered} answered, seed ${seed}`,
);
for (const complaint of complaints) console.log(`FAULT ${complaint}`);
console.log(complaints.length === 0 ? "verdict: no faults" : `verdict: ${complaints.length} faults`);
process.exit(complaints.length === 0 ? 0 : 1);

async function worker() {
  while (next < end && !gateway.hasEnded() && complaints.length < MAX_SHOWN) await runScript(next++);
}

async function runScript(index) {
  const random = randomOf(seed * 2 ** 21 + index);
  const count = 1 + Math.floor(random() * MAX_MESSAGES);
  const messages = Array.from({ length: count }, (_, i) =>
    messageOf(drawn[Math.floor(random() * drawn.length)], 2 * i + 1, `${index}-${i}`, random),
  );
  open.set(index, messages);
  counts.scripts += 1;
  counts.messages += count;
  const streams = await talk(messages, random);
  if (gateway.hasEnded()) return;
  for (const message of messages) {
    const complaint = judge(message, streams, messages);
    if (complaint === undefined) continue;
    complain(`script ${index} [${messages.map(({ kind }) => kind).join(" + ")}] ${message.kind}: ${complaint}`);
  }
  for (const old of open.keys()) {
    if (open.size <= REMEMBERED) break;
    open.delete(old);
  }
}

function judge(message, { bodies, ended, isHung, isClosed, goodbye }, messages) {
  const text = bodies.get(message.stream) ?? "";
  const isEnded = ended.has(message.stream);
  if (text.startsWith("answer ")) {
    counts.answered += 1;
    if (message.from === "gateway") return `answered: ${text.slice(0, 60)}`;
    const whole = `answer ${message.id} ${message.hash}`;
    if (isEnded && !message.isCut && !text.startsWith(whole)) return `got ${JSON.stringify(text.slice(0, 60))}`;
    if (!whole.startsWith(text.slice(0, whole.length))) return `got ${JSON.stringify(text.slice(0, 60))}`;
    return undefined;
  }
  const mayHaveEnded = messages.some(({ isFatal }) => isFatal);
  if (message.from === "backend" && !mayHaveEnded)
    return `no answer (${isHung ? "hung" : isClosed ? "closed" : "left"}, ${isEnded ? "ended" : "open"}${goodbye}): ${JSON.stringify(text.slice(0, 120))}`;
  return isHung && !isEnded && !message.isCut ? "hangs" : undefined;
}

/** Writes the frames of all messages, those of one in their order, cut at random bytes; reads until all have ended. */
function talk(messages, random) {
  const bytes = Buffer.concat([opening(), ...shuffled(messages, random)]);
  const cuts = Array.from({ length: Math.floor(random() * 8) }, () => Math.floor(random() * bytes.length));
  const ends = [...cuts.sort((a, b) => a - b), bytes.length];
  const bodies = new Map();
  const ended = new Set();
  const waited = new Set(messages.filter(({ isCut }) => !isCut).map(({ stream }) => stream));
  return new Promise((resolve) => {
    const socket = connect({ port: gateway.port, host: "127.0.0.1", noDelay: true });
    let isHung = false;
    let isDone = false;
    let goodbye = "";
    const timer = setTimeout(() => {
      isHung = true;
      socket.destroy();
    }, Number(flags["hang-seconds"]) * 1000);
    const read = frameReader((type, flag, stream, payload) => {
      if (flags.only !== undefined)
        console.log(
          NAMES[type] ?? type,
          flag,
          stream,
          payload.length,
          type === TYPE.reset || type === TYPE.goaway ? payload.toString("hex") : "",
        );
      if (type === TYPE.data) bodies.set(stream, (bodies.get(stream) ?? "") + payload.toString("latin1"));
      if (type === TYPE.settings && (flag & FLAG.ack) === 0) owed.push(frame(TYPE.settings, FLAG.ack, 0));
      pay();
      // As clients do. The gateway must notice that, too.
      if (type === TYPE.goaway && payload.readUInt32BE(4) !== 0) socket.destroy();
      if (type === TYPE.goaway) {
        goodbye = `, goaway ${payload.toString("hex")}`;
        // Streams opened after the client's GOAWAY are reported as not processed (RFC 9113 section 6.8).
        for (const one of [...waited]) if (one > payload.readUInt32BE(0)) over(one);
      }
      const hasEnd = (type === TYPE.data || type === TYPE.headers) && (flag & FLAG.endStream) !== 0;
      if (!hasEnd && type !== TYPE.reset) return;
      over(stream);
    });
    const over = (stream) => {
      ended.add(stream);
      waited.delete(stream);
      leave();
    };
    // Not in the middle of a frame that is cut.
    const owed = [];
    const pay = () => {
      if (ends.length === 0) for (const one of owed.splice(0)) socket.write(one);
    };
    const leave = () => {
      if (waited.size > 0 || ends.length > 0 || isDone) return;
      isDone = true;
      socket.end(frame(TYPE.goaway, 0, 0, number(0, 0)));
    };
    socket.on("data", read);
    socket.on("error", (error) => {
      goodbye += ` ${error.code}`;
    });
    socket.on("close", () => {
      if (flags.only !== undefined) console.log("closed", isHung ? "by us" : "");
      clearTimeout(timer);
      resolve({ bodies, ended, isHung, isClosed: !isDone, goodbye });
    });
    let at = 0;
    const step = () => {
      const upTo = ends.shift();
      if (upTo === undefined || !socket.writable) {
        pay();
        return leave();
      }
      if (upTo > at) socket.write(bytes.subarray(at, upTo));
      at = upTo;
      pause(Math.floor(random() * 4), step);
    };
    socket.once("connect", step);
  });
}

/** Streams must begin in the order of their numbers; what follows their first frame may come in any order. */
function shuffled(messages, random) {
  const queues = [];
  const frames = [];
  const waiting = messages.map(({ frames: own }) => [...own]);
  while (waiting.length > 0 || queues.length > 0) {
    if (waiting.length > 0 && (queues.length === 0 || random() < 0.5)) queues.push(waiting.shift());
    const chosen = Math.floor(random() * queues.length);
    const isNewest = queues.findIndex((queue) => queue.isBegun !== true);
    const queue = queues[isNewest >= 0 ? isNewest : chosen];
    queue.isBegun = true;
    const one = queue.shift();
    if (one !== undefined) frames.push(one);
    if (queue.length === 0) queues.splice(queues.indexOf(queue), 1);
  }
  return frames;
}

function pause(turns, then) {
  if (turns === 0) then();
  else setImmediate(pause, turns - 1, then);
}

/** What reaches the backend must be a request that was sent, as it was sent, and one that may pass. */
function onForwarded({ method, target, id, hash, headers, body }) {
  counts.forwarded += 1;
  const dash = id.indexOf("-");
  const message = open.get(Number(id.slice(0, dash)))?.[Number(id.slice(dash + 1))];
  if (message === undefined) return complain(`forwarded and never sent: ${method} ${target} id ${JSON.stringify(id)}`);
  message.times += 1;
  for (const name of message.unseen) if (headers.has(name)) complain(`forwarded with ${name}: ${id} (${message.kind})`);
  if (message.from === "gateway") complain(`forwarded and to be refused: ${id} (${message.kind})`);
  if (method !== message.method || target !== `/b/${id}` || hash !== message.hash)
    complain(
      `forwarded and changed: ${id} (${message.kind}) ${method} ${target} ${JSON.stringify(body)} instead of ${JSON.stringify(message.body)}`,
    );
  if (message.times > (method === "POST" ? 1 : 2))
    complain(`forwarded ${message.times} times: ${id} (${message.kind})`);
}

function complain(text) {
  if (complaints.length < MAX_SHOWN) complaints.push(text);
}
