/**
 * Maps model names to targets. Exact names match first, then patterns with one `*` in the order of the entries. The
 * policies of a model apply to a call by the model that it uses after overrides and aliases. For a virtual model,
 * targets whose rules deny the call are removed, and the policies of the first remaining target apply. A call never
 * fails over to a model whose policies it has not passed.
 */
import type { AttributeSource } from "../../cel/expression.ts";
import type { BackendEnv } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, StateKey } from "../../core/exchange.ts";
import { type CompiledScope, type CompileEnv, rejectPromise } from "../../core/policy.ts";
import { type LlmCall, llmCall, type Quote } from "../request/llm-call.ts";
import { matchPattern } from "../request/read-request.ts";
import {
  eitherCatalogue,
  estimatedTokens,
  type PriceCatalogue,
  parsePriceCatalogue,
  priceOf,
  shippedPrices,
} from "../usage/usage.ts";
import type { AiConfig } from "./schema.ts";
import type { Target } from "./target.ts";

/** The targets of a group have equal priority and share calls by weight. */
export interface TargetGroup {
  readonly targets: readonly {
    readonly target: Target;
    readonly weight: number;
    readonly model: string | undefined;
    readonly scope?: CompiledScope | undefined;
  }[];
}

export interface ModelEntry {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly isPublic: boolean;
  readonly groups: readonly TargetGroup[];
  /** Holds one condition per group. If undefined, every group accepts every call. */
  readonly accepts?: readonly ((input: ConditionInput) => boolean)[];
  readonly isCheapestFirst?: boolean;
  /** These policies apply in addition to those of the targets. Only virtual models have them. */
  readonly scope?: CompiledScope | undefined;
}

export interface ConditionInput {
  readonly attributes: AttributeSource;
  promptTokens(): number;
  /** The price is in US dollars. It is undefined if it is unknown. */
  priceAt(candidate: Candidate): number | undefined;
}

export interface Candidate {
  readonly target: Target;
  readonly model: string;
  readonly scope?: CompiledScope | undefined;
}

export interface ModelTable {
  /**
   * Returns the targets in the order to try them. Returns undefined if no model matches, and an empty list if no
   * condition is met.
   */
  candidates(model: string | undefined, input?: ConditionInput): readonly Candidate[] | undefined;
  readonly hasConditions: boolean;
  /** Returns the targets of the model in configuration order, without advancing the rotation or checking conditions. */
  possible(model: string | undefined): readonly Candidate[];
  /** Returns the policies of the virtual model itself, without those of its targets. */
  ownScope(model: string | undefined): CompiledScope | undefined;
  readonly scopes: readonly CompiledScope[];
  readonly names: readonly string[];
  readonly patterns: readonly string[];
  readonly patternTargets: readonly { readonly pattern: string; readonly members: TargetGroup["targets"] }[];
  readonly isClosed: boolean;
  /** If true, every target has a fixed model, so clients may omit it. */
  readonly hasFixedModels: boolean;
  readonly targets: readonly Target[];
}

export function createModelTable(entries: readonly ModelEntry[], isClosed: boolean): ModelTable {
  const exact = new Map<string, CompiledEntry>();
  const patterns: { readonly pattern: string; readonly entry: CompiledEntry }[] = [];
  for (const entry of entries) {
    if (!entry.isPublic) continue;
    const compiled = {
      rotations: entry.groups.map((group) => createRotation(group)),
      members: entry.groups.flatMap((group) => group.targets),
      accepts: entry.accepts,
      isCheapestFirst: entry.isCheapestFirst === true,
      scope: entry.scope,
    };
    for (const name of [entry.name, ...entry.aliases]) {
      if (name.includes("*")) patterns.push({ pattern: name, entry: compiled });
      else if (!exact.has(name)) exact.set(name, compiled);
    }
  }
  const targets = [
    ...new Set(entries.flatMap(({ groups }) => groups.flatMap((group) => group.targets.map(({ target }) => target)))),
  ];
  return {
    isClosed,
    hasFixedModels: !isClosed && targets.every(({ model }) => model !== undefined),
    names: [...exact.keys()],
    patterns: patterns.map(({ pattern }) => pattern),
    patternTargets: patterns.map(({ pattern, entry }) => ({ pattern, members: entry.members })),
    targets,
    hasConditions: entries.some(({ accepts }) => accepts !== undefined),
    candidates(model = "", input) {
      const found = find(model);
      return found && order(found.entry, model, found.starred, input);
    },
    ownScope: (model = "") => find(model)?.entry.scope,
    scopes: [
      ...new Set(
        entries.flatMap(({ scope, groups }) => [
          scope,
          ...groups.flatMap(({ targets: members }) => members.map((one) => one.scope)),
        ]),
      ),
    ].filter((scope) => scope !== undefined),
    possible(model = "") {
      const found = find(model);
      return found?.entry.members.map((member) => createCandidate(member, model, found.starred)) ?? [];
    },
  };

  function find(name: string): { readonly entry: CompiledEntry; readonly starred: string } | undefined {
    const known = exact.get(name);
    if (known) return { entry: known, starred: "" };
    for (const { pattern, entry } of patterns) {
      const starred = matchPattern(pattern, name);
      if (starred !== undefined) return { entry, starred };
    }
    return undefined;
  }
}

type Member = TargetGroup["targets"][number];

interface CompiledEntry {
  readonly rotations: readonly Rotation[];
  readonly members: readonly Member[];
  readonly accepts: ModelEntry["accepts"];
  readonly isCheapestFirst: boolean;
  readonly scope: CompiledScope | undefined;
}

function createCandidate({ target, model, scope }: Member, requested: string, starred: string): Candidate {
  const fixed = model ?? target.model;
  return { target, model: fixed === undefined ? requested : fixed.replace("*", starred), scope };
}

/** Returns healthy targets, followed by ejected targets. */
function order(
  entry: CompiledEntry,
  requested: string,
  starred: string,
  input: ConditionInput | undefined,
): Candidate[] {
  const ready: Candidate[] = [];
  const ejected: Candidate[] = [];
  for (const [i, rotation] of entry.rotations.entries()) {
    if (entry.accepts !== undefined && (input === undefined || entry.accepts[i]?.(input) !== true)) continue;
    for (const member of rotation.next()) {
      const candidate = createCandidate(member, requested, starred);
      (member.target.health.isEjected ? ejected : ready).push(candidate);
    }
  }
  if (entry.isCheapestFirst && input !== undefined) {
    sortByPrice(ready, input);
    sortByPrice(ejected, input);
  }
  return ejected.length === 0 ? ready : [...ready, ...ejected];
}

/** Candidates without a price come last. The sort is stable. */
function sortByPrice(candidates: Candidate[], input: ConditionInput): void {
  if (candidates.length < 2) return;
  const prices = new Map(candidates.map((one) => [one, input.priceAt(one) ?? Number.POSITIVE_INFINITY]));
  const priceOf = (one: Candidate): number => prices.get(one) ?? Number.POSITIVE_INFINITY;
  candidates.sort((one, other) => (priceOf(one) === priceOf(other) ? 0 : priceOf(one) - priceOf(other)));
}

interface Rotation {
  /** Returns all targets of the group, starting with the target selected for this call. */
  next(): readonly Member[];
}

/** Implements smooth weighted round robin, which is deterministic and interleaves the targets evenly. */
function createRotation(group: TargetGroup): Rotation {
  const { targets } = group;
  if (targets.length === 1) return { next: () => targets };
  const credits = new Float64Array(targets.length);
  const total = targets.reduce((sum, { weight }) => sum + weight, 0);
  return {
    next() {
      let chosen = 0;
      for (let i = 0; i < targets.length; i++) {
        credits[i] = (credits[i] as number) + (targets[i]?.weight ?? 0);
        if ((credits[i] as number) > (credits[chosen] as number)) chosen = i;
      }
      credits[chosen] = (credits[chosen] as number) - total;
      const first = targets[chosen];
      return first ? [first, ...targets.filter((_, i) => i !== chosen)] : targets;
    },
  };
}

type Kind = "model" | "virtual model";

interface Policed {
  readonly name: string;
  readonly policies?: Readonly<Record<string, unknown>> | undefined;
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

/** A complete published catalog is a few megabytes. */
const MAX_CATALOGUE_BYTES = 16 * 1024 * 1024;

/** Price comparisons assume this output if the client sets no limit. */
const ASSUMED_OUTPUT_TOKENS = 500;

/** `alternatives` returns further models, under the provider's names, that the provider may use for the request. */
export type Quotes = (model: string | undefined, alternatives?: () => readonly string[]) => Quote;

/** Unless disabled, the shipped price list covers models that the operator's catalog does not include. */
export function loadPrices(
  { modelCatalog, shippedPrices: usesShipped }: Pick<AiConfig, "modelCatalog" | "shippedPrices">,
  env: Pick<CompileEnv, "readFile">,
): PriceCatalogue | undefined {
  const own =
    modelCatalog === undefined ? undefined : parsePriceCatalogue(env.readFile(modelCatalog, MAX_CATALOGUE_BYTES));
  if (!usesShipped) return own;
  return own === undefined ? shippedPrices() : eitherCatalogue(own, shippedPrices());
}

export function conditionInput(exchange: Exchange, prices: PriceCatalogue | undefined): ConditionInput {
  const { llm } = exchange.attributes;
  return {
    attributes: exchange.celAttributes,
    promptTokens: () => estimatedTokens(llm),
    priceAt({ target, model }) {
      if (prices === undefined) return undefined;
      const output = llm?.maxOutputTokens ?? ASSUMED_OUTPUT_TOKENS;
      return priceOf(prices, target.provider.name, [model], estimatedTokens(llm), output);
    },
  };
}

export function createQuotes(table: ModelTable, prices: PriceCatalogue | undefined): Quotes | undefined {
  if (prices === undefined) return undefined;
  return (requested, alternatives) => (inputTokens, outputTokens) => {
    let highest: number | undefined;
    for (const { target, model } of table.possible(requested)) {
      // A catalog may list the model under the name that the client uses.
      const names = requested === undefined ? [model] : [model, requested];
      const price = priceOf(prices, target.provider.name, names, inputTokens, outputTokens);
      if (price !== undefined && (highest === undefined || price > highest)) highest = price;
      for (const name of alternatives?.() ?? []) {
        const other = priceOf(prices, target.provider.name, [name], inputTokens, outputTokens);
        // The provider may choose the unpriced alternative, so the price has no upper bound.
        if (other === undefined) return undefined;
        if (highest === undefined || other > highest) highest = other;
      }
    }
    return highest;
  };
}
