/**
 * Policies inside of a backend, for example of one model: entered when the body was read and everything outside of them
 * agreed, one scope after the other, each as a whole: access, limits, shape, then the rules and limits that read the body.
 * The rules are asked for each attempt; what a scope's limits took is not taken again.
 */
import type { Backend } from "../../core/backend.ts";
import type { CompiledScope } from "../../core/policy.ts";
import { type BodyRules, scoped } from "./body-rules.ts";
import { type RequestRun, runAdmission } from "./run-hooks.ts";

export interface InnerRun extends RequestRun {
  readonly rules: BodyRules;
  enter(scope: CompiledScope): void;
  pass(scope: CompiledScope, list: "access" | "shape", next: () => void): void;
}

export function passInner(run: InnerRun, backend: Backend, call: () => void): void {
  const scopes = backend.inner?.(run.exchange) ?? [];
  const passFrom = (at: number): void => {
    const scope = scopes[at];
    if (scope === undefined) call();
    else passScope(run, scope, () => passFrom(at + 1));
  };
  passFrom(0);
}

function passScope(run: InnerRun, scope: CompiledScope, next: () => void): void {
  const { rules, isNew } = run.rules.inside(scope);
  run.enter(scope);
  const reach = (): void => run.pass(scope, "shape", () => rules.pass([scope], [scope], next));
  run.pass(scope, "access", () => {
    if (isNew && scope.admit.length > 0) runAdmission(run, "admit", scoped("admit", [scope]), reach);
    else reach();
  });
}
