/**
 * Runs the rules that read the request's body, limits whose key reads it, and token limits, before the backend is
 * called. The rules run for each attempt, and the limits are charged once.
 */
import type { CompiledScope } from "../../core/policy.ts";
import { type AdmissionHook, type HookRun, runAdmission, runParsedHooks, type ScopedPolicy } from "./run-hooks.ts";

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
    const isIdle = this.#isAdmitted || !entered.some(({ admitParsed }) => admitParsed.length > 0);
    this.#isAdmitted = true;
    if (isIdle) next();
    else runAdmission(this.#run, "admitParsed", scoped("admitParsed", entered), next);
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
    return !entered.some(({ parsed }) => parsed.length > 0) || runParsedHooks(this.#run, scoped("parsed", entered));
  }

  #charge(charged: readonly CompiledScope[], next: () => void): void {
    const isIdle = this.#isCharged || this.#run.exchange.attributes.llm === undefined;
    if (isIdle || !charged.some(({ llmRequest }) => llmRequest.length > 0)) {
      next();
      return;
    }
    this.#isCharged = true;
    runAdmission(this.#run, "llmRequest", scoped("llmRequest", charged), next);
  }
}

export function readBodies(scopes: readonly CompiledScope[]): boolean {
  return scopes.some(
    ({ parsed, admitParsed, llmRequest }) => parsed.length > 0 || admitParsed.length > 0 || llmRequest.length > 0,
  );
}

export function scoped(hook: ScopedHook, scopes: readonly CompiledScope[]): readonly ScopedPolicy[] {
  let all: readonly ScopedPolicy[] = NONE;
  for (const scope of scopes) {
    if (scope[hook].length === 0) continue;
    const own = scopedPolicies(hook, scope);
    all = all === NONE ? own : [...all, ...own];
  }
  return all;
}

type ScopedHook = AdmissionHook | "parsed";

const NONE: readonly ScopedPolicy[] = [];

const made = new WeakMap<CompiledScope, Map<ScopedHook, readonly ScopedPolicy[]>>();

function scopedPolicies(hook: ScopedHook, scope: CompiledScope): readonly ScopedPolicy[] {
  let lists = made.get(scope);
  if (lists === undefined) {
    lists = new Map();
    made.set(scope, lists);
  }
  let list = lists.get(hook);
  if (list === undefined) {
    list = scope[hook].map((policy) => ({ phase: scope.phase, policy }));
    lists.set(hook, list);
  }
  return list;
}
