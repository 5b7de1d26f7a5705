/**
 * Loaded into a gateway process before the gateway (`node --import`): each SIGWINCH ends the thread that was started last,
 * in the middle of whatever it does. For tests of a thread's death; the gateway itself has no door for that.
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
