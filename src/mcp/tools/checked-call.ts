/**
 * What happens to the calls of a target on their way: everything that the server sends for a call passes the guards of the
 * target, and a call may run only for a limited time.
 */
import type { Clock } from "../../base/clock.ts";
import { finish, SLICED_BYTES } from "../../base/turns.ts";
import { withAnswer } from "../protocol/access.ts";
import {
  type Call,
  NOTHING_RUNS,
  type Question,
  type Running,
  type ShadowTold,
  serverFailure,
} from "../protocol/call.ts";
import { INTERNAL_ERROR, type ServerMessage } from "../protocol/json-rpc.ts";
import { largeOrSmall } from "../protocol/large-or-small.ts";
import type { Upstream } from "../server-side/upstream.ts";
import { guardedMessage, refusedAnswer, watchedMessage } from "./guarded-message.ts";
import type { ResultGuard, ToolProduct } from "./tool-product.ts";

type Guards = Pick<ToolProduct, "guard" | "watch">;

/** Guards in shadow mode see what the others let through. */
export function checkedCall(call: Call, guards: Guards): Call {
  const { guard, watch } = guards;
  if (guard === undefined && watch === undefined) return call;
  const { method } = call.request;
  const tell = call.watched;
  return {
    ...withAnswer(call, (message) => message),
    notified(message) {
      const passed = checkedNow(message, guards, tell);
      if (passed) call.notified(passed);
    },
    asked(question) {
      const passed = checkedQuestion(question, guards, tell);
      if (passed) call.asked(passed);
    },
    answered: (message) =>
      largeOrSmall(
        message,
        function* () {
          const passed =
            guard === undefined
              ? message
              : ((yield* guardedMessage(message, guard, method)) ?? refusedAnswer(guard.refusal));
          if (watch && tell) report(yield* watchedMessage(passed, watch), tell);
          return passed;
        },
        (passed) => call.answered(passed),
        (failure) => call.failed(failure),
      ),
  };
}

/** A notification or a request of the server, at once, so that the order stays. Undefined if it must not pass. */
export function checkedNow(
  message: ServerMessage,
  { guard, watch }: Guards,
  tell?: ShadowTold,
): ServerMessage | undefined {
  const isLarge = message.text.length > SLICED_BYTES;
  if (guard !== undefined && isLarge) return undefined;
  const passed = guard === undefined ? message : finish(guardedMessage(message, guard, message.method ?? ""));
  if (passed && watch && tell && !isLarge) report(finish(watchedMessage(passed, watch)), tell);
  return passed;
}

/** The server gets an error for a question that must not pass. */
export function checkedQuestion(question: Question, guards: Guards, tell?: ShadowTold): Question | undefined {
  const passed = checkedNow(question.message, guards, tell);
  if (passed === question.message) return question;
  if (passed === undefined) {
    question.answer(refusalOf(guards.guard));
    return undefined;
  }
  const shown: Question = {
    message: passed,
    method: question.method,
    answer: (outcome, wire) => question.answer(outcome, wire),
    withdrawn: undefined,
  };
  question.withdrawn = (reason) => shown.withdrawn?.(reason);
  return shown;
}

function refusalOf(guard: ResultGuard | undefined): string {
  return `"error":${JSON.stringify({ code: INTERNAL_ERROR, message: guard?.refusal ?? "" })}`;
}

function report(findings: readonly { readonly rule: string; readonly action: string }[], tell: ShadowTold): void {
  for (const { rule, action } of findings)
    tell(`a result guard would ${action} what matches \`${rule}\``, `resultGuard: ${rule}`);
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
