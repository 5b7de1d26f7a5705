/**
 * Runs the rules that read the request's body, limits whose key reads it, and token limits, before the backend is
 * called. The rules run for each attempt, and the limits are charged once.
 */
import type { CompiledScope } from "../../core/policy.ts";
import { type HookRun, policiesOf, runAdmission, runBodyHooks } from "./run-hooks.ts";

export class BodyRules {
  readonly #run: HookRun;
  #isAdmitted = false;
  #isCharged = false;
  #inside: Map<CompiledScope, BodyRules> | undefined;

  constructor(run: HookRun) {
    this.#run = run;
  }

  /** The token limits of the `charged` scopes count the call. */
  pass(entered: readonly CompiledScope[], charged: readonly CompiledScope[], next: () => void): void {
    if (this.#judge(entered)) this.admit(entered, () => this.#charge(charged, next));
  }

  /** Called before a response that replaces the backend's. Token limits are not charged. */
  passUncalled(entered: readonly CompiledScope[], next: () => void): void {
    if (this.#judge(entered)) this.admit(entered, next);
  }

  /** Charges the limits whose key reads the body, in the first call only. */
  admit(entered: readonly CompiledScope[], next: () => void): void {
    const limits = this.#isAdmitted ? [] : policiesOf(entered, ({ admit }) => admit.body);
    this.#isAdmitted = true;
    if (limits.length === 0) next();
    else runAdmission(this.#run, "body", limits, next);
  }

  /**
   * Returns the body rules for a scope inside the backend. `isNew` is true if no earlier attempt entered the scope.
   */
  inside(scope: CompiledScope): { readonly rules: BodyRules; readonly isNew: boolean } {
    this.#inside ??= new Map();
    const known = this.#inside.get(scope);
    const rules = known ?? new BodyRules(this.#run);
    this.#inside.set(scope, rules);
    return { rules, isNew: known === undefined };
  }

  #judge(entered: readonly CompiledScope[]): boolean {
    return runBodyHooks(
      this.#run,
      policiesOf(entered, ({ body }) => body),
    );
  }

  #charge(charged: readonly CompiledScope[], next: () => void): void {
    const isIdle = this.#isCharged || this.#run.exchange.attributes.llm === undefined;
    const limits = isIdle ? [] : policiesOf(charged, ({ admit }) => admit.call);
    if (limits.length === 0) {
      next();
      return;
    }
    this.#isCharged = true;
    runAdmission(this.#run, "call", limits, next);
  }
}

export function readBodies(scopes: readonly CompiledScope[]): boolean {
  return scopes.some(({ body, admit }) => body.length > 0 || admit.body.length > 0 || admit.call.length > 0);
}
