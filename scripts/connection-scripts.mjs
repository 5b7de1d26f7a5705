/**
 * Sends random scripts of pipelined messages to a gateway in its own process. No script may crash or hang it, reach the
 * backend changed, or get another request's response. If the machine was too busy, so that time limits closed
 * connections, the script is repeated and counted as repeated.
 * `node scripts/connection-scripts.mjs --count 100000 --seed 1` (after `npm run build`); `--only 4711` repeats one.
 */
import { connect } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startBackend } from "./connection-scripts/backend.mjs";
import { checkAnswers } from "./connection-scripts/check.mjs";
import { KINDS, LAST } from "./connection-scripts/kinds.mjs";
import { runGateway } from "./connection-scripts/run-gateway.mjs";
import { watchStarvation } from "./connection-scripts/starved.mjs";
import { randomOf } from "./random.mjs";

const MAX_MESSAGES = 6;
const MAX_SHOWN = 10;
/** Waited for a processor while one script ran: at least so long, and a quarter of its time. The shortest time limit is 2 s. */
const STARVED_MS = 1_000;
const STARVED_SHARE = 0.25;
/** A script that has never a fair chance is a fault as well. */
const MAX_REPEATS = 5;
/** Finished scripts whose requests are still known: more than run within a second. */
const REMEMBERED = 4_000;
/** Sent at most once; others may be repeated when a kept connection was closed under them. */
const ONCE = new Set(["POST"]);

const { values: flags } = parseArgs({
  options: {
    count: { type: "string", default: "10000" },
    seed: { type: "string", default: "1" },
    parallel: { type: "string", default: "64" },
    "hang-seconds": { type: "string", default: "20" },
    only: { type: "string" },
    gateway: { type: "string", default: join(import.meta.dirname ?? "scripts", "..", "dist", "gateway.js") },
  },
});
const seed = Number(flags.seed);
const names = Object.keys(KINDS);
/** Large bodies cost thirty times as much, so they are drawn less often than their weight. */
const drawn = names.flatMap((name) => Array(KINDS[name][0] * (name.includes("large") ? 1 : 3)).fill(name));

const counts = { scripts: 0, messages: 0, forwarded: 0, resets: 0, repeated: 0 };
const perKind = new Map(names.map((name) => [name, 0]));
const complaints = [];
const open = new Map();
/** Ordered by their ends, kept as long as they may be looked up. */
const finished = [];
let forgotten = 0;
/** Connections that are under way, in the order of their begin: one look at the oldest replaces a timer for each. */
const talks = new Set();
setInterval(giveUpOnOld, 1_000).unref();

const backend = await startBackend(onForwarded, complain);
const gateway = await runGateway(flags.gateway, backend.port);
const starvation = watchStarvation([gateway.pid, process.pid]);

const startedMs = performance.now();
const first = flags.only === undefined ? 0 : Number(flags.only);
const end = flags.only === undefined ? Number(flags.count) : first + 1;
let next = first;
/** The ids of repeated scripts: nothing of their first run is taken for one of the second. */
let nextRepeat = 2 ** 32;
await Promise.all(Array.from({ length: Number(flags.parallel) }, worker));
const seconds = (performance.now() - startedMs) / 1000;
if (!gateway.hasEnded())
  await checkNothingIsLeft().catch((error) => complain(`the admin interface: ${error.cause ?? error}`));
const fault = await gateway.stop();
if (fault !== undefined) complaints.unshift(`${fault}\nopen then: ${[...open.keys()].slice(-200).join(" ")}`);
report();

async function worker() {
  while (next < end && !gateway.hasEnded() && complaints.length < MAX_SHOWN) await runScript(next++);
}

async function runScript(index, id = index, repeats = 0) {
  const random = randomOf(seed * 2 ** 21 + index);
  const messages = [];
  const count = 1 + Math.floor(random() * MAX_MESSAGES);
  for (let i = 0; i < count; i++) {
    const kind = drawn[Math.floor(random() * drawn.length)];
    const made = KINDS[kind][1](`${id}-${i}`, random);
    made.kind = kind;
    messages.push(made);
  }
  messages.push(LAST(`${id}-${count}`, random));
  for (const message of messages) message.times = 0;
  open.set(id, messages);
  counts.scripts += 1;
  counts.messages += messages.length;
  for (const { kind } of messages) if (kind !== "last") perKind.set(kind, perKind.get(kind) + 1);
  const before = { atMs: performance.now(), waitedMs: starvation.waitedMs() };
  const { text, end: how } = await talk(messages, random);
  // Late forwards of a finished script must still find their request.
  finished.push(id);
  if (finished.length - forgotten > REMEMBERED) open.delete(finished[forgotten++]);
  if (how === "reset") counts.resets += 1;
  const complaint =
    how === "hang"
      ? `hangs after ${text.length} bytes: ${JSON.stringify(text.slice(-300))}`
      : checkAnswers(messages, text, how === "reset");
  if (complaint === undefined || gateway.hasEnded()) return;
  const starvedMs = Math.round(starvation.waitedMs() - before.waitedMs);
  const isStarved = starvedMs > Math.max(STARVED_MS, STARVED_SHARE * (performance.now() - before.atMs));
  if (isStarved && repeats < MAX_REPEATS) {
    counts.repeated += 1;
    await runScript(index, nextRepeat++, repeats + 1);
  } else {
    const kinds = messages.map(({ kind }) => kind).join(" + ");
    complain(`script ${index} [${kinds}] ${how}, starved for ${starvedMs} ms, repeated ${repeats} times: ${complaint}`);
  }
}

/** Writes the script, split at random bytes, and collects the output until the gateway closes the connection. */
function talk(messages, random) {
  const bytes = Buffer.from(messages.map((message) => message.bytes).join(""), "latin1");
  const cuts = Array.from({ length: Math.floor(random() * 8) }, () => Math.floor(random() * bytes.length));
  const ends = [...cuts.sort((a, b) => a - b), bytes.length];
  return new Promise((resolve) => {
    const socket = connect({ port: gateway.port, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
    const chunks = [];
    let how = "closed";
    const hang = () => {
      how = "hang";
      socket.destroy();
    };
    const own = { sinceMs: performance.now(), hang };
    talks.add(own);
    socket.on("data", (chunk) => chunks.push(chunk));
    socket.on("error", () => {
      if (how === "closed") how = "reset";
    });
    socket.on("end", () => socket.end());
    socket.on("close", () => {
      talks.delete(own);
      resolve({ text: Buffer.concat(chunks).toString("latin1"), end: how });
    });
    let at = 0;
    const step = () => {
      const upTo = ends.shift();
      if (upTo === undefined || !socket.writable) return;
      if (upTo > at) socket.write(bytes.subarray(at, upTo));
      at = upTo;
      pause(Math.floor(random() * 4), step);
    };
    socket.once("connect", step);
  });
}

function giveUpOnOld() {
  const limitMs = performance.now() - Number(flags["hang-seconds"]) * 1000;
  for (const talk of talks) {
    if (talk.sinceMs > limitMs) return;
    talks.delete(talk);
    talk.hang();
  }
}

function pause(turns, then) {
  if (turns === 0) then();
  else setImmediate(pause, turns - 1, then);
}

/** What reaches the backend must be a request that was sent, as it was sent, and one that may pass. */
function onForwarded({ method, target, id, hash }) {
  counts.forwarded += 1;
  const message = messageOf(id);
  if (message === undefined) return complain(`forwarded and never sent: ${method} ${target} id ${JSON.stringify(id)}`);
  message.times += 1;
  if (message.from === "gateway" && !message.bytes.includes("X-Reply: cut"))
    complain(`forwarded and to be refused: ${id} (${message.kind})`);
  if (method !== message.method || target !== `/b/${id}` || hash !== message.hash)
    complain(`forwarded and changed: ${id} (${message.kind}) ${method} ${target}`);
  if (message.times > (ONCE.has(method) ? 1 : 2)) complain(`forwarded ${message.times} times: ${id} (${message.kind})`);
}

function messageOf(id) {
  const dash = id.indexOf("-");
  const found = open.get(Number(id.slice(0, dash)))?.[Number(id.slice(dash + 1))];
  return found?.id === id ? found : undefined;
}

async function checkNothingIsLeft() {
  for await (const left of gateway.whatIsLeft()) complain(left);
}

function complain(text) {
  if (complaints.length < MAX_SHOWN) complaints.push(text);
}

function report() {
  for (const [name, count] of perKind) console.log(`${String(count).padStart(9)}  ${name}`);
  const rate = Math.round(counts.scripts / seconds);
  const { user, system } = process.cpuUsage();
  console.log(`CPU of this process: ${((user + system) / 1e6).toFixed(1)} s`);
  console.log(
    `${counts.scripts} scripts, ${counts.messages} messages, ${counts.forwarded} forwarded, ${counts.resets} resets, ${counts.repeated} repeated, ${seconds.toFixed(1)} s, ${rate} scripts/s, seed ${seed}`,
  );
  for (const complaint of complaints) console.log(`FAULT ${complaint}`);
  console.log(complaints.length === 0 ? "verdict: no faults" : `verdict: ${complaints.length} faults`);
  process.exit(complaints.length === 0 ? 0 : 1);
}
