/**
 * Tries to reach real time, chance, sockets, files, processes, and threads from an isolated process, and prints what
 * each attempt gave. The argument is a port on which a real server listens.
 */
import childProcess from "node:child_process";
import crypto from "node:crypto";
import dgram from "node:dgram";
import dns from "node:dns";
import fs, { readFileSync, writeSync as replacedWriteSync } from "node:fs";
import fsPromises from "node:fs/promises";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import net from "node:net";
import { performance } from "node:perf_hooks";
import timers from "node:timers";
import timersPromises from "node:timers/promises";
import tls from "node:tls";
import { Worker } from "node:worker_threads";
import zlib from "node:zlib";
import { Channels, NOT_SLOW } from "./channel.ts";
import { Children } from "./children.ts";
import { Files } from "./files.ts";
import { isolate, realWork, seal } from "./isolate.ts";
import { Network, NO_FAULTS } from "./network.ts";
import { Scheduler } from "./scheduler.ts";
import { Seeded } from "./seeded.ts";
import { Threads } from "./threads.ts";

const { writeSync } = fs;
const { setImmediate: realImmediate } = globalThis;
const port = Number(process.argv[2]);
const scheduler = new Scheduler(1);
const network = new Network(scheduler, new Seeded(1, "network"), 1);
isolate({
  scheduler,
  network,
  random: new Seeded(1, "gateway"),
  addressOf: () => "10.0.0.1",
  pidOf: () => 1,
  faultsTo: () => NO_FAULTS,
  resolve: () => ({ delayMs: 1, addresses: [] }),
});
const channels = new Channels(scheduler, new Seeded(1, "channels"), NOT_SLOW);
await seal(
  new Files(network, new Seeded(1, "files")),
  new Children(network, {}),
  new Threads(network, channels, new Seeded(1, "threads"), new Map()),
);

const events: string[] = [];
const result = {
  events,
  closed: attempts({
    "fs.promises.readFile": () => fs.promises.readFile(process.execPath),
    "fs/promises.readFile": () => fsPromises.readFile(process.execPath),
    "fs.createReadStream": () => fs.createReadStream(process.execPath),
    "child_process.fork": () => childProcess.fork(process.execPath),
    "dgram.createSocket": () => dgram.createSocket("udp4"),
    "dns.resolve": () => dns.resolve("localhost", () => undefined),
    "dns.promises.lookup": () => dns.promises.lookup("localhost"),
    "http.request": () => http.request({ port }),
    "https.get": () => https.get({ port }),
    "http2.connect": () => http2.connect(`http://127.0.0.1:${port}`),
    "tls.createServer": () => tls.createServer(),
    Worker: () => new Worker("", { eval: true }),
    fetch: () => fetch(`http://127.0.0.1:${port}`),
    "zlib.gzip": () => zlib.gzip("a", () => undefined),
    "crypto.scrypt": () => crypto.scrypt("a", "b", 1, () => undefined),
    "crypto.generateKeyPairSync": () => crypto.generateKeyPairSync("ec", { namedCurve: "P-256" }),
    "crypto.subtle.digest": () => crypto.subtle.digest("SHA-256", new Uint8Array(1)),
    "timers/promises.setTimeout": () => timersPromises.setTimeout(1),
  }),
  missing: attempts({
    "fs.readFileSync": () => readFileSync(process.execPath),
    "fs.openSync": () => fs.openSync(process.execPath, "r"),
    "fs.writeSync": () => replacedWriteSync(1, "x"),
    "child_process.spawn": () => childProcess.spawn(process.execPath),
    "process.kill": () => process.kill(process.ppid, 0),
  }),
  chance: [
    Math.random(),
    crypto.randomBytes(8).toString("hex"),
    crypto.randomUUID(),
    crypto.randomInt(1_000_000),
    Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex"),
    crypto.randomFillSync(Buffer.alloc(4)).toString("hex"),
  ],
  times: [] as number[],
  realWork: [] as string[],
};

setTimeout(() => events.push("timeout"), 1);
timers.setTimeout(() => events.push("timers.setTimeout"), 1);
const interval = setInterval(() => events.push("interval"), 1);
setImmediate(() => events.push("immediate"));
net.connect({ port, host: "127.0.0.1" }).on("error", (error) => events.push(error.message));
net.connect({ port, host: "localhost" }).on("error", (error) => events.push(error.message));
tls.connect({ port, host: "127.0.0.1" }).on("error", (error) => events.push(`tls ${error.message}`));
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
result.times = [
  Date.now(),
  Date.parse(new Date().toISOString()),
  performance.now(),
  process.hrtime()[1],
  process.uptime(),
];
realImmediate(() =>
  realImmediate(() => {
    if (events.length > 0) events.push("before the virtual clock moved");
    scheduler.runUntil(() => scheduler.nowMs > 3);
    clearInterval(interval);
    result.realWork = realWork();
    writeSync(1, JSON.stringify(result));
    process.exit();
  }),
);

function attempts(all: Record<string, () => unknown>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(all).map(([name, reach]) => {
      try {
        reach();
        return [name, "reached"];
      } catch (error) {
        return [name, (error as Error).message];
      }
    }),
  );
}
