/**
 * Replaces every source of time, chance, and input of this process: timers and clocks, random numbers, sockets, and
 * names. Everything else that reaches the outside (files, child processes, threads, other protocols) throws.
 *
 * Call `isolate` before the gateway is imported, and `seal` after that, because Node's module loader reads files.
 */
import childProcess from "node:child_process";
import crypto from "node:crypto";
import dgram from "node:dgram";
import dns from "node:dns";
import dnsPromises from "node:dns/promises";
import fs from "node:fs";
import fsPromises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";
import os from "node:os";
import { performance } from "node:perf_hooks";
import { setDefaultHighWaterMark } from "node:stream";
import timers from "node:timers";
import timersPromises from "node:timers/promises";
import v8 from "node:v8";
import type { Children } from "./children.ts";
import type { Files } from "./files.ts";
import type { Faults, Network } from "./network.ts";
import { OUTSIDE, type Scheduler, type Task } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";
import { simulateSockets, systemError } from "./sockets.ts";
import type { Threads } from "./threads.ts";

/** The simulation starts at this wall-clock time: 2026-01-01T12:00:00Z. */
export const START_MS = Date.UTC(2026, 0, 1, 12);

const MEMORY_BYTES = 512 * 1024 * 1024;

export interface Outside {
  readonly scheduler: Scheduler;
  readonly network: Network;
  readonly random: Seeded;
  /** The address of a simulated process. */
  addressOf(process: string): string;
  /** The process ID of a simulated process. */
  pidOf(process: string): number;
  faultsTo(address: string): Faults;
  /** The addresses of a name, after a delay. */
  resolve(name: string): { readonly delayMs: number; readonly addresses: readonly string[] };
}

export function isolate(outside: Outside): void {
  simulateTime(outside.scheduler);
  const pid = (): number => outside.pidOf(outside.scheduler.process);
  Object.defineProperty(process, "pid", { get: pid, configurable: true });
  simulateChance(outside.random);
  fixMachine();
  const lookup = simulateNames(outside);
  simulateSockets(outside.network, outside.addressOf, outside.faultsTo, lookup);
  // The defaults of Node 20 and of later versions.
  setDefaultHighWaterMark(false, outside.random.pick([16, 64]) * 1024);
  syncBuiltinESMExports();
}

/** The memory and the version of Node do not depend on the machine. Node 20 has no ports that threads share. */
function fixMachine(): void {
  const usage = { rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 };
  Object.assign(process, { memoryUsage: () => usage, constrainedMemory: () => MEMORY_BYTES });
  Object.assign(v8, {
    getHeapStatistics: () => ({ used_heap_size: 0, heap_size_limit: MEMORY_BYTES }),
    getHeapSpaceStatistics: () => [],
  });
  Object.assign(os, { totalmem: () => 2 * MEMORY_BYTES, networkInterfaces: () => ({}) });
  const versions = { ...process.versions, node: "24.0.0" };
  Object.defineProperty(process, "versions", { value: versions, configurable: true });
  // Each thread has a listener for the end of the process.
  process.setMaxListeners(0);
}

type Callback = (...args: unknown[]) => void;

function simulateTime(scheduler: Scheduler): void {
  class Timeout {
    #task: Task;
    readonly #start: () => Task;

    constructor(start: (timer: Timeout) => Task) {
      this.#start = () => start(this);
      this.#task = this.#start();
    }

    refresh(): this {
      this.close();
      this.#task = this.#start();
      return this;
    }

    close(): this {
      scheduler.cancel(this.#task);
      return this;
    }

    ref(): this {
      return this;
    }

    unref(): this {
      return this;
    }

    hasRef(): boolean {
      return true;
    }
  }
  const delay = (ms: number | undefined): number => (ms !== undefined && ms >= 1 && ms <= 2 ** 31 - 1 ? ms : 1);
  const setTimeout = (run: Callback, ms?: number, ...args: unknown[]): Timeout =>
    new Timeout(() => scheduler.after(delay(ms), () => run(...args)));
  const setInterval = (run: Callback, ms?: number, ...args: unknown[]): Timeout =>
    new Timeout((timer) =>
      scheduler.after(delay(ms), () => {
        timer.refresh();
        run(...args);
      }),
    );
  const setImmediate = (run: Callback, ...args: unknown[]): Timeout =>
    new Timeout(() => scheduler.immediate(() => run(...args)));
  const clear = (timer: Timeout | undefined | null): void => void timer?.close();
  const functions = {
    setTimeout,
    setInterval,
    setImmediate,
    clearTimeout: clear,
    clearInterval: clear,
    clearImmediate: clear,
  };
  Object.assign(globalThis, functions);
  Object.assign(timers, functions);
  closeModule("timers/promises", timersPromises);

  const now = (): number =>
    START_MS + Math.floor(scheduler.nowMs + (scheduler.process === OUTSIDE ? 0 : scheduler.clockErrorMs));
  const RealDate = Date;
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, args, newTarget) => Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget),
    apply: () => new RealDate(now()).toString(),
  });
  Date.now = now;
  Object.defineProperty(performance, "now", { value: () => scheduler.nowMs, configurable: true });
  const nanoseconds = (): bigint => BigInt(Math.round(scheduler.nowMs * 1e6));
  const hrtime = ([seconds, rest]: [number, number] = [0, 0]): [number, number] => {
    const passed = nanoseconds() - BigInt(seconds) * 1_000_000_000n - BigInt(rest);
    return [Number(passed / 1_000_000_000n), Number(passed % 1_000_000_000n)];
  };
  process.hrtime = Object.assign(hrtime, { bigint: nanoseconds });
  process.uptime = () => scheduler.nowMs / 1000;
}

function simulateChance(random: Seeded): void {
  const fill = <View extends NodeJS.ArrayBufferView>(view: View, from = 0, size = view.byteLength - from): View => {
    const bytes = new Uint8Array(view.buffer, view.byteOffset + from, size);
    for (let i = 0; i < bytes.length; i++) bytes[i] = random.next() & 0xff;
    return view;
  };
  Math.random = () => random.fraction();
  const randomBytes = (size: number): Buffer => fill(Buffer.alloc(size));
  const randomUUID = (): string => {
    const hex = randomBytes(16).toString("hex");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
  };
  const randomInt = (least: number, below?: number): number =>
    below === undefined ? random.int(least) : least + random.int(below - least);
  const asynchronous = ["randomFill", "generateKey", "generateKeyPair", "scrypt", "pbkdf2", "hkdf", "generatePrime"];
  const unseeded = ["generateKeySync", "generateKeyPairSync", "generatePrimeSync"];
  Object.assign(crypto, { randomBytes, randomFillSync: fill, randomUUID, randomInt });
  for (const name of [...asynchronous, ...unseeded]) Object.assign(crypto, { [name]: closed(`crypto.${name}`) });
  Object.defineProperty(crypto.webcrypto, "getRandomValues", { value: fill });
  Object.defineProperty(crypto.webcrypto, "randomUUID", { value: randomUUID });
  const { subtle } = crypto.webcrypto;
  for (const name of Object.getOwnPropertyNames(Object.getPrototypeOf(subtle)))
    if (name !== "constructor") Object.defineProperty(subtle, name, { value: closed(`crypto.subtle.${name}`) });
}

function simulateNames({ scheduler, resolve }: Outside) {
  type Done = (error: Error | null, addresses: readonly { address: string; family: number }[]) => void;
  const lookup = (name: string, _options: object, done: Done): void => {
    const { delayMs, addresses } = resolve(name);
    scheduler.after(delayMs, () => {
      if (addresses.length === 0) done(systemError("getaddrinfo", "ENOTFOUND"), []);
      else
        done(
          null,
          addresses.map((address) => ({ address, family: 4 })),
        );
    });
  };
  closeModule("dns", dns);
  closeModule("dns/promises", dnsPromises);
  Object.assign(dns, { lookup });
  return lookup;
}

/** Real work that is allowed: it has no input from outside. */
const PURE = /^(?:Stats|Dirent|constants|.*_.*|Agent|.*Response|.*Message|validate.*|METHODS|STATUS_CODES)$/;

/** Closes everything else. The module loader does not work afterwards. */
export async function seal(files: Files, children: Children, threads: Threads): Promise<void> {
  const [http, http2, https, tls, zlib] = await Promise.all([
    import("node:http"),
    import("node:http2"),
    import("node:https"),
    import("node:tls"),

    import("node:zlib"),
  ]);
  for (const [name, module] of Object.entries({ fs, dgram, "fs/promises": fsPromises, child_process: childProcess }))
    closeModule(name, module);
  Object.assign(fs, files.functions());
  Object.assign(fsPromises, files.promises());
  children.replaceFunctions();
  for (const name of ["request", "get"]) {
    Object.assign(http.default, { [name]: closed(`http.${name}`) });
    Object.assign(https.default, { [name]: closed(`https.${name}`) });
  }
  Object.assign(http2.default, { connect: closed("http2.connect"), createServer: closed("http2.createServer") });
  simulateTls(http.default, https.default, tls.default);
  threads.replaceClasses();
  for (const name of Object.keys(zlib.default))
    if (/^[a-z]/.test(name) && !/Sync$|^c(?:rc32|odes|onstants)/.test(name))
      replace(zlib.default, name, `zlib.${name}`);
  replace(globalThis, "fetch", "fetch");
  replace(globalThis, "WebSocket", "WebSocket");
  syncBuiltinESMExports();
}

/** TLS has no encryption and no certificates. */
function simulateTls(http: object, https: object, tls: object): void {
  const { createServer } = http as { createServer(handler: object): object };
  const connect = (options: net.NetConnectOpts): net.Socket => {
    const socket = net.connect(options);
    socket.once("connect", () => socket.emit("secureConnect"));
    return Object.assign(socket, { encrypted: true, authorized: true, alpnProtocol: "http/1.1" });
  };
  Object.assign(tls, { connect, createServer: closed("tls.createServer") });
  Object.assign(https, { createServer: (_options: object, handler: object) => createServer(handler) });
}

function closeModule(name: string, module: object): void {
  for (const key of Object.keys(module)) if (!PURE.test(key)) replace(module, key, `${name}.${key}`);
}

function replace(holder: object, key: string, name: string): void {
  const { value, configurable, writable } = Object.getOwnPropertyDescriptor(holder, key) ?? {};
  if (typeof value !== "function" || (!configurable && !writable)) return;
  Object.defineProperty(holder, key, { value: closed(name), configurable: true, writable: true });
}

/** A function, also used as a class, that must not be called. */
function closed(name: string): () => never {
  return function notSimulated(): never {
    throw new Error(`${name} is not simulated`);
  };
}

/** What this process waits for outside of the simulation. It must stay empty. */
export function realWork(): string[] {
  return process.getActiveResourcesInfo().filter((name) => !/^(?:TTY|Pipe|File|Immediate)/.test(name));
}
