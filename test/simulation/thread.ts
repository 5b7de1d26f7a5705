/**
 * The code of a worker thread that serves requests (`src/bin/thread.ts`), with its memory accounts.
 */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { runThread } from "../../src/app/threads/thread-app.ts";
import { watchAccounts } from "./accounts.ts";

export const accounts = watchAccounts();

runThread(workerData, parentPort as MessagePort, "file:///gateway/thread.js");
