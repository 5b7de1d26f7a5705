/**
 * Runs a worker thread.
 */
import { parentPort, workerData } from "node:worker_threads";
import type { ThreadData } from "../app/threads/messages.ts";
import { runThread } from "../app/threads/thread-app.ts";
import { processEnvironment } from "../config/text/env.ts";
import { setFastReads } from "../http/h1/socket-reads.ts";
import { restrictNetworks } from "../http/local-address.ts";

if (parentPort !== null) {
  setFastReads(processEnvironment().GATEWAY_FAST_READS !== "off");
  restrictNetworks((workerData as ThreadData).environment.GATEWAY_BACKEND_NETWORKS);
  const app = runThread(workerData as ThreadData, parentPort, import.meta.url);
  // An exception in one connection must not end the others.
  process.on("uncaughtException", app.unexpected);
  process.on("unhandledRejection", app.unexpected);
}
