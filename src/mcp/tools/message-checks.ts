/**
 * Applies the result guards of a target to the messages of its server: results, errors, notifications, and requests.
 * Messages pass the patterns, then the external guards, then the guards in shadow mode.
 */

import { finish, SLICED_BYTES } from "../../base/sliced-work.ts";
import {
  type Call,
  type Failure,
  forwardedCall,
  type Question,
  runMessageSteps,
  type ShadowReporter,
} from "../protocol/call.ts";
import { INTERNAL_ERROR, type ServerMessage } from "../protocol/json-rpc.ts";
import type { GuardQueue } from "./external-guard.ts";
import { guardedMessage, refusedAnswer, watchedMessage } from "./result-guard.ts";
import type { MessageGuards } from "./tool-settings.ts";

export interface MessageChecks {
  readonly guards: MessageGuards;
  readonly queue: GuardQueue | undefined;
  /** Undefined for messages that belong to no call. */
  readonly call?: Call | undefined;
}

export function checkedCall(call: Call, guards: MessageGuards, queue?: GuardQueue): Call {
  const { guard } = guards;
  if (guard === undefined && guards.watch === undefined && queue === undefined) return call;
  const { method } = call.request;
  const checks: MessageChecks = { guards, queue, call };
  const failed = (failure: Failure): void => {
    if (queue) queue.afterwards(() => call.failed(failure));
    else call.failed(failure);
  };
  const checkExternally = (message: ServerMessage): void =>
    externallyChecked(message, method, checks, (passed) => {
      if (passed) watchedAnswer(passed, checks, () => call.answered(passed), failed);
    });
  return forwardedCall(call, {
    notified: (message) => passNotification(message, checks, (passed) => call.notified(passed)),
    asked: (question) => passQuestion(question, checks, (passed) => call.asked(passed)),
    answered(message) {
      if (guard === undefined) checkExternally(message);
      else
        runMessageSteps(
          message,
          function* () {
            return (yield* guardedMessage(message, guard, method)) ?? refusedAnswer(guard.refusal);
          },
          checkExternally,
          failed,
        );
    },
    failed,
  });
}

function externallyChecked(
  message: ServerMessage,
  method: string,
  { queue, call }: MessageChecks,
  deliver: (passed: ServerMessage | undefined) => void,
): void {
  if (queue === undefined) {
    deliver(message);
    return;
  }
  const { method: called, params } = call?.request ?? {};
  const tool = called === "tools/call" ? String(params?.name) : undefined;
  queue.check(message, { method, tool, report: call?.guarded }, deliver);
}

function watchedAnswer(
  message: ServerMessage,
  { guards: { watch }, call }: MessageChecks,
  done: () => void,
  failed: (failure: Failure) => void,
): void {
  const reportFinding = call?.watched;
  if (watch === undefined || reportFinding === undefined) {
    done();
    return;
  }
  runMessageSteps(
    message,
    () => watchedMessage(message, watch),
    (findings) => {
      report(findings, reportFinding);
      done();
    },
    failed,
  );
}

/** Applies the patterns immediately, because the order of messages must not change. */
function guardedNow(message: ServerMessage, { guard, external }: MessageGuards): ServerMessage | undefined {
  if (guard === undefined && external === undefined) return message;
  if (message.text.length > SLICED_BYTES) return undefined;
  return guard === undefined ? message : finish(guardedMessage(message, guard, message.method ?? ""));
}

function watchNow(message: ServerMessage, { guards: { watch }, call }: MessageChecks): void {
  const reportFinding = call?.watched;
  if (watch && reportFinding && message.text.length <= SLICED_BYTES)
    report(finish(watchedMessage(message, watch)), reportFinding);
}

export function passNotification(
  message: ServerMessage,
  checks: MessageChecks,
  deliver: (passed: ServerMessage) => void,
): void {
  const guarded = guardedNow(message, checks.guards);
  if (guarded === undefined) return;
  externallyChecked(guarded, message.method ?? "", checks, (passed) => {
    if (passed === undefined) return;
    watchNow(passed, checks);
    deliver(passed);
  });
}

/** Sends an error to the server if its request is rejected. */
export function passQuestion(question: Question, checks: MessageChecks, deliver: (passed: Question) => void): void {
  const guarded = guardedNow(question.message, checks.guards);
  let isWithdrawn = false;
  const finishCheck = (passed: ServerMessage | undefined): void => {
    if (isWithdrawn) return;
    question.withdrawn = undefined;
    if (passed === undefined) question.answer(refusalMember(checks.guards));
    else {
      watchNow(passed, checks);
      deliver(passed === question.message ? question : changedQuestion(question, passed));
    }
  };
  if (guarded === undefined) {
    finishCheck(undefined);
    return;
  }
  question.withdrawn = () => {
    isWithdrawn = true;
  };
  externallyChecked(guarded, question.method, checks, finishCheck);
}

function changedQuestion(question: Question, message: ServerMessage): Question {
  const shown: Question = {
    message,
    method: question.method,
    answer: (outcome, wire) => question.answer(outcome, wire),
    withdrawn: undefined,
  };
  question.withdrawn = (reason) => shown.withdrawn?.(reason);
  return shown;
}

function refusalMember({ guard, external }: MessageGuards): string {
  return `"error":${JSON.stringify({ code: INTERNAL_ERROR, message: guard?.refusal ?? external?.refusal ?? "" })}`;
}

function report(
  findings: readonly { readonly rule: string; readonly action: string }[],
  reportFinding: ShadowReporter,
): void {
  for (const { rule, action } of findings)
    reportFinding(`a result guard would ${action} what matches \`${rule}\``, `resultGuard: ${rule}`);
}
