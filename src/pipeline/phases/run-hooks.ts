/**
 * Runs hooks in order. After a synchronous hook, the next hook runs without a promise.
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange, Step } from "../../core/exchange.ts";
import {
  type AdmitHook,
  type Charge,
  type CompiledPolicy,
  type CompiledScope,
  type HookResult,
  type ResponseHook,
  rejectPromise,
} from "../../core/policy.ts";
import type { Reply } from "../../core/reply.ts";
import type { PolicyMoment } from "../../record/trace/record.ts";
import type { Redaction } from "../../record/trace/redact.ts";

export interface HookRun {
  readonly exchange: Exchange;
  readonly clock: Clock;
  readonly redaction: Redaction;
  /** True in a dry run, which does not call services that confirm a charge. */
  readonly isDry: boolean;
  /** Handles exceptions of a hook and of the code after it. */
  fail(error: unknown): void;
}

export interface RequestRun extends HookRun {
  /** Buffers the request's body before `next`. Throws or fails with a 413 if it is larger than `maxBytes`. */
  holdBody(maxBytes: number, next: () => void): void;
}

/** `done` receives the first Reply that a hook returned, or undefined if all hooks accepted the request. */
export function runRequestHooks(
  run: RequestRun,
  step: "access" | "shape",
  policies: readonly CompiledPolicy[],
  done: (reply: Reply | undefined) => void,
  from = 0,
): void {
  for (let i = from; i < policies.length; i++) {
    const policy = policies[i] as CompiledPolicy;
    const hook = policy.hooks[step];
    // The body is read only after the previous policies have accepted the request, so that clients do not upload a body
    // that one of them rejects.
    if (run.exchange.request.body.kind === "stream") {
      const maxBytes = hook?.bodyBytes?.(run.exchange);
      if (maxBytes !== undefined) {
        run.holdBody(maxBytes, () => runRequestHooks(run, step, policies, done, i));
        return;
      }
    }
    const startedMs = run.clock.monotonicMs();
    let result: HookResult;
    try {
      result = hook?.head?.(run.exchange);
    } catch (error) {
      refuse(run, policy, "request", startedMs, error);
      return;
    }
    if (result instanceof Promise) {
      result
        .then(
          (reply) => {
            note(run, policy, "request", startedMs, reply ? "answered" : "passed");
            if (reply) done(reply);
            else runRequestHooks(run, step, policies, done, i + 1);
          },
          (error) => refuse(run, policy, "request", startedMs, error),
        )
        .catch(run.fail);
      return;
    }
    note(run, policy, "request", startedMs, result ? "answered" : "passed");
    if (result) {
      done(result);
      return;
    }
  }
  done(undefined);
}

interface Admitted {
  readonly policy: CompiledPolicy;
  readonly charge: Charge;
}

/** What the trace calls the functions of admission hooks. */
const ADMISSION: Readonly<Record<keyof AdmitHook, PolicyMoment>> = {
  head: "admit",
  body: "admitParsed",
  call: "llmRequest",
};

/**
 * Admits a request in three steps: all hooks, the charges of local counters, and the calls of external services.
 * Charges are refunded if a step rejects the request.
 */
export function runAdmission(
  run: HookRun,
  on: keyof AdmitHook,
  policies: readonly CompiledPolicy[],
  done: () => void,
): void {
  const moment = ADMISSION[on];
  const admitted: Admitted[] = [];
  for (const policy of policies) {
    const startedMs = run.clock.monotonicMs();
    try {
      const charge = rejectPromise("admit", policy.hooks.admit?.[on]?.(run.exchange));
      if (charge) admitted.push({ policy, charge });
    } catch (error) {
      refuse(run, policy, moment, startedMs, error);
      return;
    }
    note(run, policy, moment, startedMs, "passed");
  }
  const { exchange } = run;
  for (const { policy, charge } of admitted) {
    try {
      rejectPromise("take", charge.take());
    } catch (error) {
      // Another thread may have exhausted the limit in the meantime.
      refuse(run, policy, moment, run.clock.monotonicMs(), error);
      return;
    }
    if (exchange.limits.charges === undefined) exchange.limits.charges = [charge];
    else exchange.limits.charges.push(charge);
  }
  if (run.isDry) done();
  else confirm(run, moment, admitted, 0, done);
}

function confirm(
  run: HookRun,
  moment: PolicyMoment,
  admitted: readonly Admitted[],
  from: number,
  done: () => void,
): void {
  let next = from;
  while (next < admitted.length && admitted[next]?.charge.confirm === undefined) next += 1;
  const { policy, charge } = admitted[next] ?? {};
  const confirmation = charge?.confirm?.();
  if (policy === undefined || confirmation === undefined) {
    done();
    return;
  }
  const startedMs = run.clock.monotonicMs();
  confirmation
    .then(
      () => confirm(run, moment, admitted, next + 1, done),
      (error) => refuse(run, policy, moment, startedMs, error),
    )
    .catch(run.fail);
}

/** Runs the rules that depend on the body. Returns false if a rule rejected the request. */
export function runBodyHooks(run: HookRun, policies: readonly CompiledPolicy[]): boolean {
  for (const policy of policies) {
    const startedMs = run.clock.monotonicMs();
    const { access, shape } = policy.hooks;
    try {
      rejectPromise("body", access?.body?.(run.exchange));
      rejectPromise("body", shape?.body?.(run.exchange));
    } catch (error) {
      refuse(run, policy, "parsed", startedMs, error);
      return false;
    }
    note(run, policy, "parsed", startedMs, "passed");
  }
  return true;
}

export function runResponseHooks(run: HookRun, policies: readonly CompiledPolicy[], done: () => void, from = 0): void {
  for (let i = from; i < policies.length; i++) {
    const policy = policies[i] as CompiledPolicy;
    const startedMs = run.exchange.trace === undefined ? 0 : run.clock.monotonicMs();
    let result: ReturnType<ResponseHook["head"]>;
    try {
      result = policy.hooks.response?.head(run.exchange);
    } catch (error) {
      show(run, policy, "response", startedMs, "refused", error);
      run.fail(error);
      return;
    }
    if (result instanceof Promise) {
      result
        .then(() => {
          show(run, policy, "response", startedMs, "passed");
          runResponseHooks(run, policies, done, i + 1);
        })
        .catch(run.fail);
      return;
    }
    show(run, policy, "response", startedMs, "passed");
  }
  done();
}

function refuse(run: HookRun, policy: CompiledPolicy, moment: PolicyMoment, startedMs: number, error: unknown): void {
  const { charges } = run.exchange.limits;
  run.exchange.limits.charges = undefined;
  if (charges) for (const charge of charges) charge.giveBack();
  note(run, policy, moment, startedMs, "refused", error);
  run.fail(error);
}

function note(
  run: HookRun,
  policy: CompiledPolicy,
  moment: PolicyMoment,
  startedMs: number,
  verdict: Step["verdict"],
  error?: unknown,
): void {
  const micros = Math.round((run.clock.monotonicMs() - startedMs) * 1000);
  const { phase, kind, of } = policy;
  run.exchange.steps.push(
    of === undefined ? { phase, policy: kind, verdict, micros } : { phase, of, policy: kind, verdict, micros },
  );
  show(run, policy, moment, startedMs, verdict, error);
}

function show(
  run: HookRun,
  policy: CompiledPolicy,
  moment: PolicyMoment,
  startedMs: number,
  verdict: Step["verdict"],
  error?: unknown,
): void {
  if (run.exchange.trace === undefined) return;
  const { skipped } = run.exchange;
  run.exchange.skipped = undefined;
  const result = verdict !== "passed" ? verdict : skipped === undefined ? "applied" : "skipped";
  const why = error instanceof Error ? errorDetail(error) : skipped;
  const { pairs } = run.exchange.request.headers;
  const { phase, kind, of } = policy;
  const details = why === undefined ? {} : { details: run.redaction.scrub(why, pairs) };
  run.exchange.trace.span(
    startedMs,
    { type: "policy", phase, ...(of === undefined ? {} : { of }), kind, moment, result, ...details },
    verdict === "refused" ? "warn" : "info",
  );
}

function errorDetail(error: Error & { detail?: string }): string {
  return error.detail ?? error.message;
}

/** Joins the lists of several scopes. Most scopes have none. */
export function policiesOf(
  scopes: readonly CompiledScope[],
  listOf: (scope: CompiledScope) => readonly CompiledPolicy[],
): readonly CompiledPolicy[] {
  let all = NONE;
  for (const scope of scopes) {
    const own = listOf(scope);
    if (own.length > 0) all = all === NONE ? own : [...all, ...own];
  }
  return all;
}

const NONE: readonly CompiledPolicy[] = [];
