/**
 * Loaded into a gateway process with `node --import`: each SIGWINCH terminates the worker thread that was started
 * last.
 */
import { isMainThread, Worker } from "node:worker_threads";

if (isMainThread) {
  const threads: Worker[] = [];
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (this: Worker, ...args: Parameters<typeof postMessage>) {
    if (!threads.includes(this)) threads.push(this);
    return postMessage.apply(this, args);
  };
  process.on("SIGWINCH", () => void threads.pop()?.terminate());
}
