/**
 * Maps model names to targets. Exact names match first, then patterns with one `*` in the order of the entries.
 */
import type { AttributeSource } from "../../cel/expression.ts";
import type { CompiledScope } from "../../core/policy.ts";
import { matchPattern } from "../request/named-models.ts";
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
