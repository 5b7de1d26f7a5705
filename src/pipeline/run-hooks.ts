/**
 * Runs hooks one after another: synchronously as long as they answer at once, because most do and a promise per
 * hook would be paid by every request. Each hook's verdict and time go into the exchange's step list.
 */
import type { Exchange, Step } from "../core/exchange.ts";
import type { Charge } from "../core/policy.ts";
import type { Reply } from "../core/reply.ts";
import type { CompiledPolicy } from "../core/topology.ts";
import type { Clock } from "../lib/clock.ts";
import type { Phase, PolicyMoment } from "../trace/events.ts";

export interface HookRun {
  readonly exchange: Exchange;
  readonly clock: Clock;
  /** Anything thrown, by a hook or by what follows it. */
  fail(error: unknown): void;
}

/** `done` gets the first Reply that a hook returned, or undefined when all let the request pass. */
export function runRequestHooks(
  run: HookRun,
  phase: Phase,
  policies: readonly CompiledPolicy[],
  done: (reply: Reply | undefined) => void,
  from = 0,
): void {
  for (let i = from; i < policies.length; i++) {
    const policy = policies[i] as CompiledPolicy;
    const startedMs = run.clock.monotonicMs();
    let result: ReturnType<NonNullable<CompiledPolicy["hooks"]["request"]>>;
    try {
      result = policy.hooks.request?.(run.exchange);
    } catch (error) {
      note(run, phase, policy.kind, "request", startedMs, "refused", error);
      run.fail(error);
      return;
    }
    if (result instanceof Promise) {
      result
        .then(
          (reply) => {
            note(run, phase, policy.kind, "request", startedMs, reply ? "answered" : "passed");
            if (reply) done(reply);
            else runRequestHooks(run, phase, policies, done, i + 1);
          },
          (error) => {
            note(run, phase, policy.kind, "request", startedMs, "refused", error);
            run.fail(error);
          },
        )
        .catch(run.fail);
      return;
    }
    note(run, phase, policy.kind, "request", startedMs, result ? "answered" : "passed");
    if (result) {
      done(result);
      return;
    }
  }
  done(undefined);
}

export interface ScopedPolicy {
  readonly phase: Phase;
  readonly policy: CompiledPolicy;
}

/** Admission: every hook is asked first; only when all agreed are the charges applied, so a refusal costs nothing. */
export function runAdmission(
  run: HookRun,
  hook: "admit" | "llmRequest",
  policies: readonly ScopedPolicy[],
  done: () => void,
  from = 0,
  charges: Charge[] = [],
): void {
  for (let i = from; i < policies.length; i++) {
    const { phase, policy } = policies[i] as ScopedPolicy;
    const startedMs = run.clock.monotonicMs();
    let result: Charge | undefined | Promise<Charge | undefined>;
    try {
      result = policy.hooks[hook]?.(run.exchange);
    } catch (error) {
      note(run, phase, policy.kind, hook, startedMs, "refused", error);
      run.fail(error);
      return;
    }
    if (result instanceof Promise) {
      result
        .then(
          (charge) => {
            note(run, phase, policy.kind, hook, startedMs, "passed");
            if (charge) charges.push(charge);
            runAdmission(run, hook, policies, done, i + 1, charges);
          },
          (error) => {
            note(run, phase, policy.kind, hook, startedMs, "refused", error);
            run.fail(error);
          },
        )
        .catch(run.fail);
      return;
    }
    note(run, phase, policy.kind, hook, startedMs, "passed");
    if (result) charges.push(result);
  }
  for (const charge of charges) charge();
  done();
}

/** Response hooks change headers in place; `done` runs after the last. */
export function runResponseHooks(
  run: HookRun,
  phase: Phase,
  policies: readonly CompiledPolicy[],
  done: () => void,
  from = 0,
): void {
  for (let i = from; i < policies.length; i++) {
    const { kind, hooks } = policies[i] as CompiledPolicy;
    const startedMs = run.exchange.trace === undefined ? 0 : run.clock.monotonicMs();
    const result = hooks.response?.(run.exchange);
    if (result instanceof Promise) {
      result
        .then(() => {
          show(run, phase, kind, "response", startedMs, "passed");
          runResponseHooks(run, phase, policies, done, i + 1);
        })
        .catch(run.fail);
      return;
    }
    show(run, phase, kind, "response", startedMs, "passed");
  }
  done();
}

function note(
  run: HookRun,
  phase: Phase,
  kind: string,
  moment: PolicyMoment,
  startedMs: number,
  verdict: Step["verdict"],
  error?: unknown,
): void {
  const micros = Math.round((run.clock.monotonicMs() - startedMs) * 1000);
  run.exchange.steps.push({ phase, policy: kind, verdict, micros });
  show(run, phase, kind, moment, startedMs, verdict, error);
}

function show(
  run: HookRun,
  phase: Phase,
  kind: string,
  moment: PolicyMoment,
  startedMs: number,
  verdict: Step["verdict"],
  error?: unknown,
): void {
  if (run.exchange.trace === undefined) return;
  const result = verdict === "passed" ? "applied" : verdict;
  const details = error instanceof Error ? { details: detailOf(error) } : {};
  run.exchange.trace.span(
    startedMs,
    { type: "policy", phase, kind, moment, result, ...details },
    verdict === "refused" ? "warn" : "info",
  );
}

function detailOf(error: Error & { detail?: string }): string {
  return error.detail ?? error.message;
}
