/**
 * The log of a thread: lines go to the main thread, many in one message, because only one may write to the output.
 */

import type { Clock } from "../../base/clock.ts";
import type { LogOutput } from "../../observe/log/log-output.ts";

/** As the output itself gathers them. */
const GATHER_MS = 20;
const GATHER_CHARS = 32 * 1024;

export function createThreadOutput(clock: Clock, send: (text: string) => void): LogOutput {
  let waiting = "";
  let isScheduled = false;

  function flush(): void {
    isScheduled = false;
    if (waiting === "") return;
    send(waiting);
    waiting = "";
  }

  return {
    write(line) {
      waiting += line;
      if (waiting.length >= GATHER_CHARS) flush();
      if (isScheduled || waiting === "") return;
      isScheduled = true;
      clock.after(GATHER_MS, flush);
    },
    dropped: () => 0,
    flushSync: flush,
  };
}
