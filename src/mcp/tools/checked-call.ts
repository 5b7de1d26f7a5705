/**
 * What is done to a single call of a tool: its result passes the guards of the target, and it may run only so long.
 */
import type { Clock } from "../../lib/process/clock.ts";
import type { Upstream } from "../servers/upstream.ts";
import { withAnswer, withAnswerInTurns } from "../wire/access.ts";
import { type Call, NOTHING_RUNS, type Running, serverFailure } from "../wire/call.ts";
import { guardedResult, watchedResult } from "./guarded-result.ts";
import type { ToolProduct } from "./tool-product.ts";

/** Guards in shadow mode see what the others let through. */
export function checkedCall(call: Call, { guard, watch }: Pick<ToolProduct, "guard" | "watch">): Call {
  if (guard === undefined && watch === undefined) return call;
  const tell = watch && call.watched;
  return withAnswerInTurns(call, function* (message) {
    const passed = guard === undefined ? message : yield* guardedResult(message, guard);
    if (watch && tell)
      for (const { rule, action } of yield* watchedResult(passed, watch))
        tell(`a result guard would ${action} what matches \`${rule}\``, `resultGuard: ${rule}`);
    return passed;
  });
}

export interface TimedCall {
  readonly timeoutMs: number;
  /** The tool's name as clients know it. */
  readonly shown: string;
  readonly clock: Clock;
  readonly upstream: Upstream;
}

export function timedCall(call: Call, { timeoutMs, shown, clock, upstream }: TimedCall): Running {
  let running: Running = NOTHING_RUNS;
  const timer = clock.after(timeoutMs, () => {
    running.cancel("timeout");
    const seconds = timeoutMs / 1000;
    call.failed(serverFailure(`tool "${shown}" did not respond within ${seconds} s`, "backend_timeout"));
  });
  running = upstream.call({
    ...withAnswer(call, (message) => message),
    answered: (message) => {
      timer.cancel();
      call.answered(message);
    },
    failed: (failure) => {
      timer.cancel();
      call.failed(failure);
    },
  });
  return {
    cancel: (reason) => {
      timer.cancel();
      running.cancel(reason);
    },
  };
}
