/**
 * Selects the policies that apply to a call by the model it uses after overrides and aliases. For a virtual model,
 * targets whose rules deny the call are removed, and the policies of the first remaining target apply. A call never
 * fails over to a model whose policies it has not passed.
 */
import type { BackendEnv, InnerPolicies } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, StateKey } from "../../core/exchange.ts";
import { type CompiledScope, rejectPromise } from "../../core/policy.ts";
import { type LlmCall, llmCall } from "../request/llm-call.ts";
import type { Candidate, ConditionInput, ModelTable, TargetGroup } from "./model-table.ts";
import type { AiConfig } from "./schema.ts";

type Kind = "model" | "virtual model";

interface Policed {
  readonly name: string;
  readonly policies?: Readonly<Record<string, unknown>> | undefined;
}

export function innerPolicies({ models = [], virtualModels = [] }: AiConfig): readonly InnerPolicies[] {
  const of = (kind: Kind, field: string, list: readonly Policed[]): InnerPolicies[] =>
    list.flatMap(({ name, policies }, i) =>
      policies === undefined ? [] : [{ name: `${kind} ${name}`, path: [field, i], policies }],
    );
  return [...of("model", "models", models), ...of("virtual model", "virtualModels", virtualModels)];
}

export function modelScope(kind: Kind, { name, policies }: Policed, env: BackendEnv): CompiledScope | undefined {
  if (policies === undefined || Object.keys(policies).length === 0) return undefined;
  checkFields(name, policies);
  return env.scopeOf?.({ name: `${kind} ${name}`, path: [], policies });
}

/** Rejects policies that would change the model, or that edit the body after it was read. */
function checkFields(name: string, policies: Readonly<Record<string, unknown>>): void {
  const { ai, transformations } = policies as {
    readonly ai?: { readonly modelAliases?: unknown; readonly overrides?: object; readonly defaults?: object };
    readonly transformations?: { readonly request?: { readonly body?: unknown } };
  };
  const refuse = (field: string, why: string): never => {
    throw new Error(`the model ${JSON.stringify(name)} cannot have \`policies.${field}\`: ${why}`);
  };
  const reason = "its policies were chosen by the model's name";
  if (ai?.modelAliases !== undefined) refuse("ai.modelAliases", reason);
  if (ai?.overrides && "model" in ai.overrides) refuse("ai.overrides.model", reason);
  if (ai?.defaults && "model" in ai.defaults) refuse("ai.defaults.model", reason);
  if (transformations?.request?.body !== undefined)
    refuse("transformations.request.body", "the body was read already: use `ai.overrides`");
}

/** Returns the scopes with policies that prevent failover from other targets. */
export function scopesWithoutFailover(groups: readonly TargetGroup[]): readonly CompiledScope[] {
  const scopes = [...new Set(groups.flatMap(({ targets }) => targets.map(({ scope }) => scope)))];
  return scopes.length < 2 ? [] : scopes.flatMap((scope) => (scope === undefined || isRulesOnly(scope) ? [] : [scope]));
}

export interface ModelPolicies {
  inner(exchange: Exchange): readonly CompiledScope[];
  /** Returns the candidates whose policies the call has passed. Throws if `inner` was not called for the same model. */
  chosen(exchange: Exchange, model: string | undefined): readonly Candidate[] | undefined;
  /** Evaluates only authorization. */
  mayUse(exchange: Exchange, model: string): boolean;
}

interface Choice {
  readonly model: string | undefined;
  readonly candidates: readonly Candidate[] | undefined;
}

export function createModelPolicies(
  table: ModelTable,
  modelOf: (llm: LlmCall) => string | undefined,
  conditions: (exchange: Exchange) => ConditionInput | undefined,
): ModelPolicies | undefined {
  if (table.scopes.length === 0) return undefined;
  const choice = new StateKey<Choice>();
  return {
    inner(exchange) {
      const llm = exchange.state(llmCall);
      const model = llm === undefined ? exchange.attributes.llm?.requestModel : modelOf(llm);
      // A request without a known model can be forwarded to the only target, so every scope applies to it.
      if (llm === undefined && model === undefined) return table.targets.length === 1 ? table.scopes : [];
      const candidates = table.candidates(model, conditions(exchange));
      const usable = candidates?.filter(({ scope }) => scope === undefined || admits(scope, exchange));
      // If every target denies the call, the policies of the first target reject the call with their reason.
      const able = usable?.length === 0 ? candidates : usable;
      const first = able?.[0]?.scope;
      const kept = able?.filter(({ scope }) => scope === undefined || scope === first || isRulesOnly(scope));
      if (llm !== undefined) exchange.setState(choice, { model, candidates: kept });
      return [table.ownScope(model), first].filter((scope) => scope !== undefined);
    },
    chosen(exchange, model) {
      const chosen = exchange.state(choice);
      if (chosen === undefined || chosen.model !== model)
        throw new GatewayError("internal", { detail: "the policies of another model were applied" });
      return chosen.candidates;
    },
    mayUse(exchange, model) {
      const { attributes } = exchange;
      const before = attributes.llm;
      attributes.llm = { requestModel: model };
      try {
        const own = table.ownScope(model);
        if (own !== undefined && !admits(own, exchange)) return false;
        return table.possible(model).some(({ scope }) => scope === undefined || admits(scope, exchange));
      } finally {
        if (before === undefined) delete attributes.llm;
        else attributes.llm = before;
      }
    },
  };
}

/** Evaluates only the scope's `authorization`, so no limits are charged. */
function admits({ access, effectivePolicy }: CompiledScope, exchange: Exchange): boolean {
  const rules = effectivePolicy.authorization as { readonly mode?: string } | undefined;
  if (rules === undefined || rules.mode === "shadow") return true;
  try {
    for (const { kind, hooks } of access) {
      if (kind !== "authorization") continue;
      rejectPromise("access", hooks.access?.head?.(exchange));
      rejectPromise("access", hooks.access?.body?.(exchange));
    }
    return true;
  } catch (error) {
    if (error instanceof GatewayError) return false;
    throw error;
  }
}

/** True if the scope has only enforced authorization, which is checked before a target is chosen. */
function isRulesOnly({ effectivePolicy }: CompiledScope): boolean {
  const rules = effectivePolicy.authorization as { readonly mode?: string } | undefined;
  return Object.keys(effectivePolicy).length === 1 && rules !== undefined && rules.mode !== "shadow";
}
