/**
 * Finds the targets of a GatewayPolicy: those that `targetRefs` names, and those whose labels `targetSelectors` selects.
 */

import { suggestion } from "../../cel/values/nearest-name.ts";
import type { Scope } from "../../core/policy.ts";
import { type Path, pathText } from "../text/value-path.ts";
import { isObject, listOf, textOf } from "../text/value-shapes.ts";
import { selectsLabels } from "./cluster.ts";
import { type ObjectReference, POLICY_API_GROUP, type ProblemList, referenceText, type Verdict } from "./documents.ts";
import { groupOfTarget, TARGET_KINDS, targetSelectorSchema } from "./policy-spec.ts";
import type { TargetOutcome } from "./status.ts";
import type { BackendTargets, GatewayTarget, Labels, RouteTarget, TargetTable } from "./targets.ts";

const MAX_TARGETS = 16;
const NOT_FOUND = " was not found";
/** The section is probably misspelled, so a security policy must not leave the target open. */
const SECTION_NOTE = "; a policy that protects blocks the whole target until this is fixed";

export interface Targets {
  readonly gateways: TargetTable<GatewayTarget>;
  readonly listenerSets: TargetTable<GatewayTarget>;
  readonly routes: TargetTable<RouteTarget>;
  readonly grpcRoutes: TargetTable<RouteTarget>;
  readonly backends: BackendTargets;
  /** Returns whether the Service or Backend exists, and has the named port if one is given. */
  backendExists(reference: ObjectReference, portName: string | undefined): boolean;
  backendLabels(reference: ObjectReference): Labels;
}

export interface ResolvedTarget {
  readonly reference: ObjectReference;
  readonly scope: Extract<Scope, "gateway" | "route" | "backend">;
  readonly names: readonly string[];
  /**
   * Names listeners, or backends of routes, that forward connections. Policies cannot apply to them, and a security
   * policy closes them.
   */
  readonly tcpNames?: readonly string[];
}

interface ResolvedTargets {
  readonly outcomes: readonly TargetOutcome[];
  readonly targets: readonly ResolvedTarget[];
  /** Lists the existing targets that invalid references probably mean. */
  readonly meant: readonly ResolvedTarget[];
  readonly repeated: readonly string[];
}

export function resolveTargets(
  spec: Readonly<Record<string, unknown>>,
  policy: { readonly namespace: string; readonly name: string },
  context: Targets,
  problems: ProblemList,
): ResolvedTargets {
  const { namespace } = policy;
  const outcomes: TargetOutcome[] = [];
  const targets: ResolvedTarget[] = [];
  const meant: ResolvedTarget[] = [];
  const repeated: string[] = [];
  const seen = new Set<string>();
  const refs = listOf(spec.targetRefs);
  if (refs.length > MAX_TARGETS)
    problems.add(["spec", "targetRefs"], `at most ${MAX_TARGETS} targets are allowed; the others are ignored`);
  // References beyond the limit, a single object instead of a list, and the field `targetRef` of other policies are
  // mistakes with a clear intent.
  for (const ref of [...refs.slice(MAX_TARGETS), spec.targetRefs, spec.targetRef]) {
    if (!isObject(ref)) continue;
    const found = lookUp(referenceOf(ref, namespace), sectionOf(ref), context, namespace);
    if (typeof found !== "string") meant.push(found.target);
  }

  for (const [i, ref] of refs.slice(0, MAX_TARGETS).entries()) {
    const fields = isObject(ref) ? ref : {};
    const reference = referenceOf(fields, namespace);
    const path = ["spec", "targetRefs", i];
    const wrong = wrongReference(reference, namespace);
    if (wrong) {
      problems.add([...path, wrong.field], wrong.message);
      const message = `${pathText([...path, wrong.field])}: ${wrong.message}`;
      const invalid: Verdict = { isTrue: false, reason: "Invalid", message };
      outcomes.push({
        reference,
        gateways: [],
        accepted: invalid,
        missing: { ...invalid, reason: "TargetNotSupported" },
      });
      for (const kind of meantKinds(reference.kind)) {
        const guess = lookUp({ ...reference, kind }, sectionOf(fields), context, namespace);
        if (typeof guess !== "string") meant.push(guess.target);
      }
      continue;
    }
    const found = lookUp(reference, sectionOf(fields), context, namespace);
    if (typeof found === "string") {
      const whole = found.endsWith(SECTION_NOTE) ? lookUp(reference, undefined, context, namespace) : found;
      if (typeof whole !== "string") meant.push(whole.target);
      problems.add(path, found);
      const reason = found.includes(NOT_FOUND) ? "TargetNotFound" : "TargetNotAttached";
      outcomes.push({ reference, gateways: [], missing: { isTrue: false, reason, message: found } });
      continue;
    }
    const key = `${found.target.scope} ${referenceText(found.target.reference)}`;
    if (seen.has(key)) {
      const message = `repeats ${referenceText(found.target.reference)}, which counts once`;
      problems.add(path, message);
      repeated.push(`${pathText(path)} ${message}`);
      continue;
    }
    seen.add(key);
    targets.push(found.target);
    outcomes.push({ reference, gateways: found.gateways, missing: undefined });
  }

  const self: ObjectReference = { group: POLICY_API_GROUP, kind: "GatewayPolicy", ...policy };
  for (const { path, selected, wrong } of selectTargets(spec.targetSelectors, namespace, context)) {
    if (wrong !== undefined) {
      problems.add(path, wrong);
      const invalid: Verdict = { isTrue: false, reason: "Invalid", message: `${pathText(path)}: ${wrong}` };
      outcomes.push({ reference: self, gateways: [], accepted: invalid, missing: invalid });
      meant.push(...selected.map(({ target }) => target));
      continue;
    }
    if (selected.length === 0) {
      const message = `${pathText(path)}: no target in the namespace ${namespace} has these labels`;
      outcomes.push({ reference: self, gateways: [], missing: { isTrue: false, reason: "TargetNotFound", message } });
    }
    for (const { target, gateways } of selected) {
      const key = `${target.scope} ${referenceText(target.reference)}`;
      if (seen.has(key)) continue;
      seen.add(key);
      targets.push(target);
      outcomes.push({ reference: target.reference, gateways, missing: undefined });
    }
  }
  return { outcomes, targets, meant, repeated };
}

interface FoundTarget {
  readonly target: ResolvedTarget;
  readonly gateways: readonly ObjectReference[];
}

interface Selection {
  readonly path: Path;
  readonly selected: readonly FoundTarget[];
  /** Set if the selector is invalid. The selection then contains every target that it could mean. */
  readonly wrong: string | undefined;
}

function selectTargets(written: unknown, namespace: string, context: Targets): Selection[] {
  if (written === undefined) return [];
  const select = (kinds: readonly string[], isSelected: (labels: Labels) => boolean): FoundTarget[] =>
    kinds.flatMap((kind) =>
      labeledTargets(kind, namespace, context)
        .filter(({ labels = {} }) => isSelected(labels))
        .flatMap(({ reference }) => {
          const found = lookUp(reference, undefined, context, namespace);
          return typeof found === "string" ? [] : [found];
        }),
    );
  if (!Array.isArray(written) || written.length > MAX_TARGETS) {
    const wrong = `expected a list with at most ${MAX_TARGETS} selectors`;
    return [{ path: ["spec", "targetSelectors"], selected: select(TARGET_KINDS, () => true), wrong }];
  }
  return written.map((selector, i) => {
    const path = ["spec", "targetSelectors", i];
    const parsed = targetSelectorSchema.safeParse(selector);
    if (parsed.success) {
      const { kind } = parsed.data;
      return { path, selected: select([kind], (labels) => selectsLabels(selector, labels)), wrong: undefined };
    }
    const wrong = parsed.error.issues.map((issue) => [...issue.path, issue.message].join(": ")).join("; ");
    const kinds = meantKinds(textOf(isObject(selector) ? selector.kind : undefined) ?? "");
    return { path, selected: select(kinds.length === 0 ? TARGET_KINDS : kinds, () => true), wrong };
  });
}

/** Returns true for an invalid selector, because it may block any target. */
export function maySelect(targetSelectors: unknown, labels: Labels): boolean {
  if (targetSelectors === undefined) return false;
  if (!Array.isArray(targetSelectors) || targetSelectors.length > MAX_TARGETS) return true;
  return targetSelectors.some(
    (selector) => !targetSelectorSchema.safeParse(selector).success || selectsLabels(selector, labels),
  );
}

function labeledTargets(
  kind: string,
  namespace: string,
  context: Targets,
): readonly { readonly reference: ObjectReference; readonly labels?: Labels }[] {
  if (kind === "Service" || kind === "Backend")
    return context.backends
      .inNamespace(kind, namespace)
      .map(({ reference }) => ({ reference, labels: context.backendLabels(reference) }));
  if (kind === "Gateway") return context.gateways.inNamespace(namespace);
  if (kind === "ListenerSet") return context.listenerSets.inNamespace(namespace);
  return (kind === "GRPCRoute" ? context.grpcRoutes : context.routes).inNamespace(namespace);
}

function referenceOf(fields: Readonly<Record<string, unknown>>, namespace: string): ObjectReference {
  return {
    group: textOf(fields.group) ?? "",
    kind: textOf(fields.kind) ?? "",
    namespace: textOf(fields.namespace) ?? namespace,
    name: textOf(fields.name) ?? "",
  };
}

/** Ignores the case of the kind. An empty kind can mean any of them. */
function meantKinds(kind: string): readonly string[] {
  return TARGET_KINDS.filter((one) => kind === "" || one.toLowerCase() === kind.toLowerCase());
}

function wrongReference(reference: ObjectReference, namespace: string): { field: string; message: string } | undefined {
  if (!TARGET_KINDS.some((kind) => kind === reference.kind)) {
    const shown = reference.kind === "" ? "the kind is missing" : `the kind ${reference.kind} is not supported`;
    return {
      field: "kind",
      message: `${shown}: use ${TARGET_KINDS.slice(0, -1).join(", ")}, or ${TARGET_KINDS.at(-1)}`,
    };
  }
  const group = groupOfTarget(reference.kind);
  if (reference.group !== group) return { field: "group", message: `expected ${group === "" ? '""' : group}` };
  if (reference.name === "") return { field: "name", message: "required field is missing" };
  if (reference.namespace !== namespace)
    return { field: "namespace", message: "a policy applies only to targets in its own namespace" };
  return undefined;
}

/** A section that is not a string names nothing. */
function sectionOf({ sectionName }: Readonly<Record<string, unknown>>): string | undefined {
  return sectionName === undefined ? undefined : String(sectionName);
}

/** Returns the target, or why there is none. The only way to a target, so no policy reaches another namespace. */
function lookUp(
  reference: ObjectReference,
  sectionName: string | undefined,
  context: Targets,
  ownNamespace: string,
): FoundTarget | string {
  if (reference.namespace !== ownNamespace) return "a policy applies only to targets in its own namespace";
  const isInSection = (section: { sectionName: string | undefined }): boolean =>
    sectionName === undefined || section.sectionName === sectionName;
  const { namespace, name } = reference;
  const shown = `${referenceText(reference)}${sectionName === undefined ? "" : ` section ${sectionName}`}`;
  if (reference.kind === "Gateway" || reference.kind === "ListenerSet") {
    const isSet = reference.kind === "ListenerSet";
    const table = isSet ? context.listenerSets : context.gateways;
    const found = table.find(namespace, name);
    if (!found) return `${shown}${NOT_FOUND}${suggestion(name, table.names(namespace))}`;
    // A policy for the whole Gateway also covers the listeners of its ListenerSets.
    const isWhole = sectionName === undefined && !isSet;
    const listeners = isWhole ? (found.merged ?? found.listeners) : found.listeners.filter(isInSection);
    if (sectionName !== undefined && listeners.length === 0) return `${shown}${NOT_FOUND}${SECTION_NOTE}`;
    // A policy for the whole Gateway also covers requests for a host name that no listener of the port has.
    const names = [
      ...new Set(
        listeners.flatMap(({ gateway, section, isTcp }) => {
          if (isTcp) return [];
          if (section === undefined) return gateway ?? [];
          return isWhole ? [section, gateway ?? section] : section;
        }),
      ),
    ];
    const tcpNames = listeners.flatMap(({ isTcp, section }) => (isTcp && section !== undefined ? [section] : []));
    if (names.length + tcpNames.length === 0) return `${shown} has no listener that can be served`;
    return {
      target: { reference: { ...reference, ...ownerOf(found, sectionName) }, scope: "gateway", names, tcpNames },
      gateways: [found.gateway ?? found.reference],
    };
  }
  if (reference.kind === "Service" || reference.kind === "Backend") {
    const found = context.backends.find(reference);
    if (!context.backendExists(reference, undefined)) return `${referenceText(reference)}${NOT_FOUND}`;
    if (sectionName !== undefined && !context.backendExists(reference, sectionName))
      return `${shown}${NOT_FOUND}${SECTION_NOTE}`;
    const uses = (found?.uses ?? []).filter(isInSection);
    if (!found || uses.length === 0) return `${shown} is not used by a route of a Gateway`;
    const namesOf = (isTcp: boolean): string[] =>
      uses.filter((use) => use.isTcp === isTcp).map(({ backend }) => backend);
    return {
      target: {
        reference: { ...reference, ...ownerOf(found, sectionName) },
        scope: "backend",
        names: namesOf(false),
        tcpNames: namesOf(true),
      },
      gateways: [...found.gateways.values()],
    };
  }
  const table = reference.kind === "GRPCRoute" ? context.grpcRoutes : context.routes;
  const found = table.find(namespace, name);
  const names = (found?.rules ?? []).filter(isInSection).map(({ route }) => route);
  if (!found) return `${shown}${NOT_FOUND}${suggestion(name, table.names(namespace))}`;
  if (sectionName !== undefined && names.length === 0) return `${shown}${NOT_FOUND}${SECTION_NOTE}`;
  if (found.gateways.length === 0 || names.length === 0) return `${shown} is not attached to any Gateway`;
  return {
    target: { reference: { ...reference, ...ownerOf(found, sectionName) }, scope: "route", names },
    gateways: found.gateways,
  };
}

function ownerOf(
  found: { readonly reference: ObjectReference },
  sectionName: string | undefined,
): { namespace: string; name: string } {
  const { namespace, name } = found.reference;
  return { namespace, name: sectionName === undefined ? name : `${name}/${sectionName}` };
}
