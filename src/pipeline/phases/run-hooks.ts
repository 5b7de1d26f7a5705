/**
 * Runs hooks in order. After a synchronous hook, the next hook runs without a promise.
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange, Step } from "../../core/exchange.ts";
import { type Charge, type CompiledPolicy, type CompiledScope, rejectPromise } from "../../core/policy.ts";
import type { Reply } from "../../core/reply.ts";
import type { Phase, PolicyMoment } from "../../observe/trace/events.ts";
import type { Redaction } from "../../observe/trace/redact.ts";

export interface HookRun {
  readonly exchange: Exchange;
  readonly clock: Clock;
  readonly redaction: Redaction;
  /** Handles exceptions of a hook and of the code after it. */
  fail(error: unknown): void;
}

export interface RequestRun extends HookRun {
  /** Buffers the request's body before `next`. Throws or fails with a 413 if it is larger than `maxBytes`. */
  holdBody(maxBytes: number, next: () => void): void;
}

/** Limits the request body that an expression can read. */
const MAX_HELD_BODY_BYTES = 2 * 1024 * 1024;

/** `done` receives the first Reply that a hook returned, or undefined if all hooks accepted the request. */
export function runRequestHooks(
  run: RequestRun,
  phase: Phase,
  policies: readonly CompiledPolicy[],
  done: (reply: Reply | undefined) => void,
  from = 0,
): void {
  for (let i = from; i < policies.length; i++) {
    const policy = policies[i] as CompiledPolicy;
    // The body is read only after the previous policies have accepted the request, so that clients do not upload a body
    // that one of them rejects.
    if (run.exchange.request.body.kind === "stream") {
      const maxBytes = bodyLimit(policy, run.exchange);
      if (maxBytes !== undefined) {
        run.holdBody(maxBytes, () => runRequestHooks(run, phase, policies, done, i));
        return;
      }
    }
    const startedMs = run.clock.monotonicMs();
    let result: ReturnType<NonNullable<CompiledPolicy["hooks"]["request"]>>;
    try {
      result = policy.hooks.request?.(run.exchange);
    } catch (error) {
      refuse(run, phase, policy, "request", startedMs, error);
      return;
    }
    if (result instanceof Promise) {
      result
        .then(
          (reply) => {
            note(run, phase, policy, "request", startedMs, reply ? "answered" : "passed");
            if (reply) done(reply);
            else runRequestHooks(run, phase, policies, done, i + 1);
          },
          (error) => refuse(run, phase, policy, "request", startedMs, error),
        )
        .catch(run.fail);
      return;
    }
    note(run, phase, policy, "request", startedMs, result ? "answered" : "passed");
    if (result) {
      done(result);
      return;
    }
  }
  done(undefined);
}

function bodyLimit({ hooks }: CompiledPolicy, exchange: Exchange): number | undefined {
  return hooks.reads?.requestBody ? MAX_HELD_BODY_BYTES : hooks.bodyBytes?.(exchange);
}

export type AdmissionHook = "admit" | "admitParsed" | "llmRequest";

export interface ScopedPolicy {
  readonly phase: Phase;
  readonly policy: CompiledPolicy;
}

interface Admitted extends ScopedPolicy {
  readonly charge: Charge;
}

/**
 * Admits a request in three steps: all hooks, the charges of local counters, and the calls of external services.
 * Charges are refunded if a step rejects the request.
 */
export function runAdmission(
  run: HookRun,
  hook: AdmissionHook,
  policies: readonly ScopedPolicy[],
  done: () => void,
): void {
  const admitted: Admitted[] = [];
  for (const { phase, policy } of policies) {
    const startedMs = run.clock.monotonicMs();
    try {
      const charge = rejectPromise(hook, policy.hooks[hook]?.(run.exchange));
      if (charge) admitted.push({ phase, policy, charge });
    } catch (error) {
      refuse(run, phase, policy, hook, startedMs, error);
      return;
    }
    note(run, phase, policy, hook, startedMs, "passed");
  }
  const { exchange } = run;
  for (const { phase, policy, charge } of admitted) {
    try {
      rejectPromise("take", charge.take());
    } catch (error) {
      // Another thread may have exhausted the limit in the meantime.
      refuse(run, phase, policy, hook, run.clock.monotonicMs(), error);
      return;
    }
    if (exchange.limits.charges === undefined) exchange.limits.charges = [charge];
    else exchange.limits.charges.push(charge);
  }
  confirm(run, hook, admitted, 0, done);
}

function confirm(
  run: HookRun,
  hook: AdmissionHook,
  admitted: readonly Admitted[],
  from: number,
  done: () => void,
): void {
  let next = from;
  while (next < admitted.length && admitted[next]?.charge.confirm === undefined) next += 1;
  const { phase, policy, charge } = admitted[next] ?? {};
  const confirmation = charge?.confirm?.();
  if (phase === undefined || policy === undefined || confirmation === undefined) {
    done();
    return;
  }
  const startedMs = run.clock.monotonicMs();
  confirmation
    .then(
      () => confirm(run, hook, admitted, next + 1, done),
      (error) => refuse(run, phase, policy, hook, startedMs, error),
    )
    .catch(run.fail);
}

/** Runs the rules that depend on the body. Returns false if a rule rejected the request. */
export function runParsedHooks(run: HookRun, policies: readonly ScopedPolicy[]): boolean {
  for (const { phase, policy } of policies) {
    const startedMs = run.clock.monotonicMs();
    try {
      rejectPromise("parsed", policy.hooks.parsed?.(run.exchange));
    } catch (error) {
      refuse(run, phase, policy, "parsed", startedMs, error);
      return false;
    }
    note(run, phase, policy, "parsed", startedMs, "passed");
  }
  return true;
}

export function runResponseHooks(
  run: HookRun,
  phase: Phase,
  policies: readonly CompiledPolicy[],
  done: () => void,
  from = 0,
): void {
  for (let i = from; i < policies.length; i++) {
    const policy = policies[i] as CompiledPolicy;
    const startedMs = run.exchange.trace === undefined ? 0 : run.clock.monotonicMs();
    let result: ReturnType<NonNullable<CompiledPolicy["hooks"]["response"]>>;
    try {
      result = policy.hooks.response?.(run.exchange);
    } catch (error) {
      show(run, phase, policy, "response", startedMs, "refused", error);
      run.fail(error);
      return;
    }
    if (result instanceof Promise) {
      result
        .then(() => {
          show(run, phase, policy, "response", startedMs, "passed");
          runResponseHooks(run, phase, policies, done, i + 1);
        })
        .catch(run.fail);
      return;
    }
    show(run, phase, policy, "response", startedMs, "passed");
  }
  done();
}

function refuse(
  run: HookRun,
  phase: Phase,
  policy: CompiledPolicy,
  moment: PolicyMoment,
  startedMs: number,
  error: unknown,
): void {
  const { charges } = run.exchange.limits;
  run.exchange.limits.charges = undefined;
  if (charges) for (const charge of charges) charge.giveBack();
  note(run, phase, policy, moment, startedMs, "refused", error);
  run.fail(error);
}

function note(
  run: HookRun,
  phase: Phase,
  policy: CompiledPolicy,
  moment: PolicyMoment,
  startedMs: number,
  verdict: Step["verdict"],
  error?: unknown,
): void {
  const micros = Math.round((run.clock.monotonicMs() - startedMs) * 1000);
  const { kind, of } = policy;
  run.exchange.steps.push(
    of === undefined ? { phase, policy: kind, verdict, micros } : { phase, of, policy: kind, verdict, micros },
  );
  show(run, phase, policy, moment, startedMs, verdict, error);
}

function show(
  run: HookRun,
  phase: Phase,
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
  const { kind, of } = policy;
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

/** Returns the hooks of the backend and of the scopes inside it, from inner to outer. */
export function responseHooks(scopes: readonly CompiledScope[]): readonly CompiledPolicy[] {
  const [backend] = scopes;
  if (scopes.length <= 1) return backend?.response ?? NONE;
  return scopes.toReversed().flatMap(({ response }) => response);
}

const NONE: readonly CompiledPolicy[] = [];
