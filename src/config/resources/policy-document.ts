/**
 * A GatewayPolicy document → policies attached to gateways and routes, and its status. Parts are independent: an
 * invalid one leaves the others standing. But an authentication or authorization that cannot be understood or
 * attached closes its targets (500 `policy_invalid`): it never leaves them open.
 */

import type { ConfigError } from "../../core/config-error.ts";
import type { Cluster } from "../cluster/cluster.ts";
import type { Path } from "../text/value-path.ts";
import { isObject } from "../text/value-shapes.ts";
import { checkParts } from "./check-parts.ts";
import {
  type Attachment,
  type Closure,
  type ObjectReference,
  POLICY_API_GROUP,
  POLICY_API_VERSION,
  type PolicyResource,
  type ResourceDocument,
  type ResourceMetadata,
  type TargetName,
  type Verdict,
} from "./documents.ts";
import { type Part, STACKING_KINDS } from "./parts.ts";
import { type ResolvedTarget, resolveTargets, type Targets } from "./policy-targets.ts";
import { fullName, identityOf, type ProblemList, referenceText } from "./problem-list.ts";
import { ACCEPTED, statusOf } from "./status.ts";

export interface PolicyContext extends Targets {
  readonly parts: readonly Part[];
  /** The policy kinds that stand on a target already, with who put them there. */
  takenKinds(target: TargetName): Map<string, string>;
  readonly nowMs: number;
  readonly previous: PolicyResource | undefined;
  readonly cluster: Cluster | undefined;
  /** The spec as it may be shown. */
  shown(spec: unknown): unknown;
  /** Another document has the same name: this one does not count. */
  readonly isDuplicate: boolean;
}

export interface TranslatedPolicy {
  readonly resource: PolicyResource;
  readonly attachments: readonly Attachment[];
  readonly closures: readonly Closure[];
}

export function translatePolicy(
  document: ResourceDocument,
  context: PolicyContext,
  problems: ProblemList,
): TranslatedPolicy {
  const { namespace, name, apiVersion } = identityOf(document);
  const value = isObject(document.value) ? document.value : {};
  const spec = isObject(value.spec) ? value.spec : {};
  const faults: ConfigError[] = [];
  let securityFault: ConfigError | undefined;
  const fault = (path: Path, message: string, isSecurity: boolean): void => {
    const error = problems.add(path, message);
    faults.push(error);
    if (isSecurity) securityFault ??= error;
  };

  if (apiVersion !== POLICY_API_VERSION) fault(["apiVersion"], `expected ${POLICY_API_VERSION}`, false);
  if (name === "") fault(["metadata", "name"], "required field is missing", false);
  if (context.isDuplicate) fault(["metadata", "name"], "another GatewayPolicy has this name", false);
  const isRefused = faults.length > 0;

  const { outcomes, targets, meant, repeated } = resolveTargets(spec, namespace, context, problems);
  if (outcomes.length === 0) fault(["spec", "targetRefs"], "a list with at least one target is required", false);
  const validParts = checkParts(spec, context.parts, document, fault, context.cluster);

  const attachments: Attachment[] = [];
  const source = `GatewayPolicy ${fullName(document)}`;
  for (const part of isRefused ? [] : validParts) {
    for (const target of targets) {
      for (const { definition, written, config } of part.policies) {
        if (!definition.scopes.includes(target.scope)) {
          fault(
            part.path,
            `cannot apply to a ${target.reference.kind} (${referenceText(target.reference)})`,
            part.isSecurity,
          );
          continue;
        }
        for (const targetName of target.names) {
          const taken = context.takenKinds({ kind: target.scope, name: targetName });
          const before = taken.get(definition.kind);
          if (before !== undefined && !STACKING_KINDS.has(definition.kind)) {
            fault(part.path, `${referenceText(target.reference)} already has ${definition.kind} from ${before}`, false);
            break;
          }
          taken.set(definition.kind, source);
          attachments.push({
            target: { kind: target.scope, name: targetName },
            kind: definition.kind,
            config,
            written,
            owner: `${referenceText(target.reference)} (${source})`,
            document,
            path: part.path,
          });
        }
      }
    }
  }
  // A document that does not count as a whole may hold a protection too: its targets wait, closed, until it does.
  if (isRefused && securityFault === undefined && validParts.some(({ isSecurity }) => isSecurity))
    securityFault = faults[0];
  const isProtection = securityFault !== undefined || validParts.some(({ isSecurity }) => isSecurity);
  const closures = [
    ...(securityFault === undefined ? [] : closuresOf(targets, document, securityFault)),
    ...(isProtection && meant.length > 0
      ? closuresOf(meant, document, problems.add(["spec", "targetRefs"], "the name of a protected target is wrong"))
      : []),
  ];

  const shownSpec = context.shown(value.spec);
  const metadata = metadataOf(value, { namespace, name }, shownSpec, context.previous);
  // A policy without any target says nothing; one whose targets are not there yet may find them later.
  const hasValidPart =
    !isRefused && outcomes.length > 0 && (targets.length === 0 ? validParts.length > 0 : attachments.length > 0);
  const accepted = withNotes(acceptance(faults, hasValidPart, closures.length > 0), repeated);
  const self: ObjectReference = { group: POLICY_API_GROUP, kind: "GatewayPolicy", namespace, name };
  return {
    resource: {
      apiVersion: apiVersion === "" ? POLICY_API_VERSION : apiVersion,
      kind: "GatewayPolicy",
      metadata,
      spec: shownSpec,
      status: { ancestors: statusOf(self, accepted, outcomes, metadata.generation, context.nowMs, context.previous) },
    },
    attachments,
    closures,
  };
}

function closuresOf(targets: readonly ResolvedTarget[], document: ResourceDocument, because: ConfigError): Closure[] {
  return targets.flatMap(({ scope, names }) =>
    names.map((name) => ({ target: { kind: scope, name }, document, reason: because.toLine() })),
  );
}

function acceptance(faults: readonly ConfigError[], hasValidPart: boolean, isClosed: boolean): Verdict {
  if (faults.length === 0) return ACCEPTED;
  // Paths carry the document's name for the log; a status stands on the document itself.
  const lines = faults.map(({ path, message }) => `${path.slice(path.indexOf(": ") + 2)}: ${message}`);
  const message = `${lines.join("; ")}${isClosed ? "; the targets are blocked until this is fixed" : ""}`;
  if (hasValidPart) return { isTrue: true, reason: "PartiallyValid", message };
  const isConflict = faults.every((fault) => / already has \S+ from /.test(fault.message));
  return { isTrue: false, reason: isConflict ? "Conflicted" : "Invalid", message };
}

function withNotes(verdict: Verdict, notes: readonly string[]): Verdict {
  return notes.length === 0 ? verdict : { ...verdict, message: [verdict.message, ...notes].join("; ") };
}

/** An API server counts generations; for files they are counted here, by changes of the spec. */
function metadataOf(
  value: Readonly<Record<string, unknown>>,
  identity: { readonly namespace: string; readonly name: string },
  spec: unknown,
  previous: PolicyResource | undefined,
): ResourceMetadata {
  const written = isObject(value.metadata) ? value.metadata : {};
  const isUnchanged = previous !== undefined && JSON.stringify(previous.spec) === JSON.stringify(spec);
  const counted = previous === undefined ? 1 : previous.metadata.generation + (isUnchanged ? 0 : 1);
  return { ...written, ...identity, generation: typeof written.generation === "number" ? written.generation : counted };
}
