/**
 * Loaded into a gateway process with `node --expose-gc --import`: on SIGUSR2, each thread collects its garbage. Changed
 * files are noticed sooner.
 */
import { BroadcastChannel, isMainThread } from "node:worker_threads";

/** The intervals at which the gateway looks for changed files and reads them again. */
const WATCH_MS: readonly unknown[] = [300, 100];

const { setInterval: every, setTimeout: after } = globalThis;
const sooner = (delay: unknown): number => (WATCH_MS.includes(delay) ? 5 : Number(delay ?? 0));
globalThis.setInterval = ((callback: () => void, delay: unknown) => every(callback, sooner(delay))) as typeof every;
globalThis.setTimeout = ((callback: () => void, delay: unknown) => after(callback, sooner(delay))) as typeof after;

const collecting = new BroadcastChannel("collect");
collecting.unref();
collecting.onmessage = () => void globalThis.gc?.();
if (isMainThread)
  process.on("SIGUSR2", () => {
    globalThis.gc?.();
    collecting.postMessage("now");
  });
