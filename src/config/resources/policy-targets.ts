/**
 * The entries of a policy's targetRefs → the gateways and routes that they stand for, or why they stand for none.
 */

import { suggestion } from "../../cel/values/nearest-name.ts";
import type { Scope } from "../../core/policy.ts";
import { pathText } from "../text/value-path.ts";
import { isObject, listOf, textOf } from "../text/value-shapes.ts";
import { GATEWAY_API_GROUP, type ObjectReference, type Verdict } from "./documents.ts";
import { type ProblemList, referenceText } from "./problem-list.ts";
import type { TargetOutcome } from "./status.ts";
import type { GatewayTarget, RouteTarget, TargetTable } from "./targets.ts";

/** The Gateway API allows no more. */
const MAX_TARGETS = 16;
const NOT_FOUND = " was not found";

export interface Targets {
  readonly gateways: TargetTable<GatewayTarget>;
  readonly routes: TargetTable<RouteTarget>;
}

export interface ResolvedTarget {
  readonly reference: ObjectReference;
  readonly scope: Extract<Scope, "gateway" | "route">;
  readonly names: readonly string[];
}

export interface ResolvedTargets {
  readonly outcomes: readonly TargetOutcome[];
  readonly targets: readonly ResolvedTarget[];
  /** Targets of references that are wrong in another field: surely meant, but not reached. */
  readonly meant: readonly ResolvedTarget[];
  /** Where an entry names a target that an earlier one names: it counts once. */
  readonly repeated: readonly string[];
}

export function resolveTargets(
  spec: Readonly<Record<string, unknown>>,
  namespace: string,
  context: Targets,
  problems: ProblemList,
): ResolvedTargets {
  const outcomes: TargetOutcome[] = [];
  const targets: ResolvedTarget[] = [];
  const meant: ResolvedTarget[] = [];
  const repeated: string[] = [];
  const seen = new Set<string>();
  const refs = listOf(spec.targetRefs);
  if (refs.length > MAX_TARGETS)
    problems.add(["spec", "targetRefs"], `at most ${MAX_TARGETS} targets are allowed; the others are ignored`);
  // One object instead of a list, and the name that it has in other policies, are mistakes whose meaning is plain.
  for (const ref of [...refs.slice(MAX_TARGETS), spec.targetRefs, spec.targetRef]) {
    if (!isObject(ref)) continue;
    const found = lookUp(referenceOf(ref, namespace), textOf(ref.sectionName), context);
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
      const guess = wrong.field === "kind" ? "" : lookUp(reference, textOf(fields.sectionName), context);
      if (typeof guess !== "string") meant.push(guess.target);
      continue;
    }
    const found = lookUp(reference, textOf(fields.sectionName), context);
    if (typeof found === "string") {
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
  return { outcomes, targets, meant, repeated };
}

function referenceOf(fields: Readonly<Record<string, unknown>>, namespace: string): ObjectReference {
  return {
    group: textOf(fields.group) ?? "",
    kind: textOf(fields.kind) ?? "",
    namespace: textOf(fields.namespace) ?? namespace,
    name: textOf(fields.name) ?? "",
  };
}

function wrongReference(reference: ObjectReference, namespace: string): { field: string; message: string } | undefined {
  if (reference.kind !== "Gateway" && reference.kind !== "HTTPRoute") {
    const shown = reference.kind === "" ? "the kind is missing" : `the kind ${reference.kind} is not supported`;
    return { field: "kind", message: `${shown}: use Gateway or HTTPRoute` };
  }
  if (reference.group !== GATEWAY_API_GROUP) return { field: "group", message: `expected ${GATEWAY_API_GROUP}` };
  if (reference.name === "") return { field: "name", message: "required field is missing" };
  if (reference.namespace !== namespace)
    return { field: "namespace", message: "a policy applies only to targets in its own namespace" };
  return undefined;
}

function lookUp(
  reference: ObjectReference,
  sectionName: string | undefined,
  context: Targets,
): { target: ResolvedTarget; gateways: readonly ObjectReference[] } | string {
  const isInSection = (section: { sectionName: string | undefined }): boolean =>
    sectionName === undefined || section.sectionName === sectionName;
  const { namespace, name } = reference;
  const shown = `${referenceText(reference)}${sectionName === undefined ? "" : ` section ${sectionName}`}`;
  if (reference.kind === "Gateway") {
    const found = context.gateways.find(namespace, name);
    const names = [...new Set((found?.listeners ?? []).filter(isInSection).flatMap(({ gateway }) => gateway ?? []))];
    if (!found) return `${shown}${NOT_FOUND}${suggestion(name, context.gateways.names(namespace))}`;
    if (sectionName !== undefined && names.length === 0) return `${shown}${NOT_FOUND}`;
    if (names.length === 0) return `${shown} has no listener that can be served`;
    return {
      target: { reference: { ...reference, ...ownerOf(found, sectionName) }, scope: "gateway", names },
      gateways: [found.reference],
    };
  }
  const found = context.routes.find(namespace, name);
  const names = (found?.rules ?? []).filter(isInSection).map(({ route }) => route);
  if (!found) return `${shown}${NOT_FOUND}${suggestion(name, context.routes.names(namespace))}`;
  if (sectionName !== undefined && names.length === 0) return `${shown}${NOT_FOUND}`;
  if (found.gateways.length === 0 || names.length === 0) return `${shown} is not attached to any Gateway`;
  return {
    target: { reference: { ...reference, ...ownerOf(found, sectionName) }, scope: "route", names },
    gateways: found.gateways,
  };
}

/** Budgets belong to what was named: the whole target, or one section of it. */
function ownerOf(
  found: { readonly reference: ObjectReference },
  sectionName: string | undefined,
): { namespace: string; name: string } {
  const { namespace, name } = found.reference;
  return { namespace, name: sectionName === undefined ? name : `${name}/${sectionName}` };
}
