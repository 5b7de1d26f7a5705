/**
 * Loaded into a gateway process with `node --import`: each SIGWINCH terminates the worker thread that was started
 * last, and SIGPWR makes it hang in an endless loop.
 */
import { BroadcastChannel, isMainThread, threadId, Worker } from "node:worker_threads";

const hanging = new BroadcastChannel("hang");
hanging.unref();

if (isMainThread) {
  const threads: Worker[] = [];
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (this: Worker, ...args: Parameters<typeof postMessage>) {
    if (!threads.includes(this)) threads.push(this);
    return postMessage.apply(this, args);
  };
  process.on("SIGWINCH", () => void threads.pop()?.terminate());
  process.on("SIGPWR", () => hanging.postMessage(threads.pop()?.threadId));
} else {
  hanging.onmessage = (event) => {
    const { data } = event as { data: unknown };
    while (data === threadId);
  };
}
