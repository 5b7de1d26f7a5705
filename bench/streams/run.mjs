/**
 * Compares programs with many open streams of one event per second: CPU time per event, resident memory per stream, and
 * the time to the first byte of new streams. Also measures the resident memory per idle connection.
 */
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gateways, present } from "../peers/programs.mjs";
import { quantile } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { cpuMicros, residentBytes } from "../support/cpu.mjs";
import { withDeadline } from "../support/deadline.mjs";
import { idleConnections } from "../support/idle-connections.mjs";
import { httpRequest } from "../support/load.mjs";
import { freePort, start } from "../support/process.mjs";
import { isWanted } from "../support/rows.mjs";
import { startBackend } from "../support/workloads.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const STREAMS = 10_000;
const IDLE = 10_000;
const AT_ONCE = 100;
/** One client address may have only half of a listener's connections. */
const ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"];
const WARM_UP = 500;
const SETTLE_MS = 4000;
const NEW_STREAMS = 500;
/** A program that does not accept all streams must not stop the run. */
const MAX_MS = 75_000;
/** Files that a process needs beside its connections. */
const SPARE_FILES = 500;

export async function benchStreams({ quick = false, programs = [...present(), ...gateways()] } = {}) {
  const http = programs.filter(({ serves }) => serves.includes("http"));
  const rows = [];
  if (isWanted("open streams")) rows.push(...(await compareStreams(http, quick)));
  if (isWanted("idle connections")) rows.push(await compareIdle(http, quick));
  return rows;
}

/** A proxy has two sockets per stream. */
function streamCount(quick) {
  const [, limit] = /Max open files\s+\S+\s+(\d+)/.exec(readFileSync("/proc/self/limits", "utf8")) ?? [0, "1024"];
  const most = Math.floor((Number(limit) - SPARE_FILES) / 2 / AT_ONCE) * AT_ONCE;
  return Math.min(quick ? 2000 : STREAMS, most);
}

async function compareStreams(programs, quick) {
  const count = streamCount(quick);
  const title = `open streams (${count.toLocaleString("en")}, one event per second each)`;
  const rows = [
    "CPU µs per event",
    "KB of memory per stream",
    "ms to the first byte, p50",
    "ms to the first byte, p99",
  ].map((what) => ({ title: `${title}: ${what}`, values: {}, errors: {} }));
  const backendPort = await freePort();
  const backend = await start(process.execPath, [join(here, "backend.mjs"), String(backendPort)], backendPort);
  try {
    // One program at a time: the streams of several would not fit into the files of the backend.
    for (const program of programs) {
      const selected = {
        programs: [program],
        values: { of: "http", backendPort },
        configure: (each, place) => each.configure(place),
      };
      await withContestants(selected, async ([contestant]) => {
        if (contestant === undefined) return;
        const { name, died } = contestant;
        const measured = await Promise.race([
          withDeadline(measureStreams(contestant, count, quick), MAX_MS),
          died,
        ]).catch((error) => console.log(`  ${name} is missing: ${error.message}`));
        if (measured === undefined) return;
        for (const [i, value] of measured.values.entries()) rows[i].values[name] = value;
        if (measured.closed > 0) rows[0].errors[name] = measured.closed;
        console.log(
          `  ${name.padEnd(20)} ${measured.values.map((value) => value.toFixed(1)).join("  ")}  (${title}; µs, KB, ms, ms)`,
        );
      });
    }
  } finally {
    await backend.stop();
  }
  return rows;
}

async function measureStreams({ port, pid }, count, quick) {
  await closeStreams(await openStreams(port, WARM_UP));
  const before = residentBytes(pid);
  const streams = await openStreams(port, count);
  await delay(SETTLE_MS);
  let events = 0;
  for (const { socket } of streams)
    socket.on("data", () => {
      events += 1;
    });
  const cpuBefore = cpuMicros(pid);
  await delay(quick ? 3000 : 8000);
  const perEvent = (cpuMicros(pid) - cpuBefore) / events;
  const perStream = (residentBytes(pid) - before) / 1024 / count;
  const firstBytes = [];
  for (let i = 0; i < NEW_STREAMS; i += AT_ONCE / 10) {
    const opened = await openStreams(port, AT_ONCE / 10);
    firstBytes.push(...opened.map(({ firstByteMs }) => firstByteMs));
    await closeStreams(opened);
  }
  const closed = streams.filter(({ socket }) => socket.destroyed).length;
  await closeStreams(streams);
  return { values: [perEvent, perStream, quantile(firstBytes, 0.5), quantile(firstBytes, 0.99)], closed };
}

async function openStreams(port, count) {
  const streams = [];
  while (streams.length < count) {
    const size = Math.min(AT_ONCE, count - streams.length);
    const opened = Array.from({ length: size }, (_, i) => openStream(port, ADDRESSES[i % ADDRESSES.length]));
    streams.push(...(await Promise.all(opened)));
  }
  return streams;
}

/** Resolves with the first byte of the body. */
function openStream(port, localAddress) {
  return new Promise((resolve, reject) => {
    const startedMs = performance.now();
    const socket = connect({ port, host: "127.0.0.1", localAddress });
    socket.setNoDelay(true);
    let head = "";
    const onData = (chunk) => {
      head += chunk.latin1Slice();
      if (!head.startsWith("HTTP/1.1 200".slice(0, head.length)))
        reject(new Error(`a stream got ${head.slice(0, 40)}`));
      if (!head.includes("data: ")) return;
      socket.off("data", onData);
      socket.resume();
      resolve({ socket, firstByteMs: performance.now() - startedMs });
    };
    socket.on("data", onData);
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("a stream was closed before its first byte")));
    socket.write(httpRequest({ path: "/stream" }));
  });
}

function closeStreams(streams) {
  const open = streams.filter(({ socket }) => !socket.destroyed);
  return Promise.all(
    open.map(
      ({ socket }) =>
        new Promise((resolve) => {
          socket.once("close", resolve);
          socket.destroy();
        }),
    ),
  );
}

async function compareIdle(programs, quick) {
  const count = quick ? 2000 : IDLE;
  const backend = await startBackend({ of: "http", isStepped: false });
  const selected = {
    programs,
    values: { of: "http", backendPort: backend.port },
    configure: (program, place) => program.configure(place),
  };
  try {
    const values = await withContestants(selected, (contestants) => idleConnections(contestants, count));
    return { title: `idle connections (${count.toLocaleString("en")}): KB of memory per connection`, values };
  } finally {
    await backend.stop();
  }
}

function delay(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
