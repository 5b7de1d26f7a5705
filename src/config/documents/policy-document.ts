/**
 * Translates a GatewayPolicy document to policies on gateways and routes, and computes its status. The targets of an
 * invalid security part reject all requests.
 */

import { suggestion } from "../../cel/values/nearest-name.ts";
import type { ConfigError } from "../../core/config-error.ts";
import type { PolicyDefinition } from "../../core/policy.ts";
import { validate } from "../schema/problems.ts";
import { type Path, pathText } from "../text/value-path.ts";
import { isObject } from "../text/value-shapes.ts";
import type { Cluster } from "./cluster.ts";
import { confinedValues } from "./confined-values.ts";
import {
  type Attachment,
  type Closure,
  fullName,
  identityOf,
  type ObjectReference,
  POLICY_API_GROUP,
  POLICY_API_VERSION,
  type PolicyResource,
  type ProblemList,
  type ResourceDocument,
  type ResourceMetadata,
  referenceText,
  type TargetName,
  type Verdict,
} from "./documents.ts";
import { findParts, type Part, STACKING_KINDS } from "./policy-spec.ts";
import { type ResolvedTarget, resolveTargets, type Targets } from "./policy-targets.ts";
import { ACCEPTED, statusOf } from "./status.ts";
import { validEntries } from "./valid-entries.ts";

export interface PolicyContext extends Targets {
  readonly parts: readonly Part[];
  takenKinds(target: TargetName): Map<string, string>;
  /** Returns the policy of a route that delegates, which takes precedence over one for the child. */
  reservedKind?(route: string, kind: string): string | undefined;
  readonly nowMs: number;
  readonly previous: PolicyResource | undefined;
  readonly cluster: Cluster | undefined;
  shown(spec: unknown): unknown;
  readonly isDuplicate: boolean;
}

interface TranslatedPolicy {
  readonly resource: PolicyResource;
  readonly attachments: readonly Attachment[];
  readonly closures: readonly Closure[];
}

export function translatePolicy(
  document: ResourceDocument,
  context: PolicyContext,
  problems: ProblemList,
): TranslatedPolicy {
  const { namespace, name, apiVersion, kind } = identityOf(document);
  const value = isObject(document.value) ? document.value : {};
  const spec = isObject(value.spec) ? value.spec : {};
  const faults: ConfigError[] = [];
  const entryFaults = new Set<ConfigError>();
  let securityFault: ConfigError | undefined;
  const fault: Fault = (path, message, { isSecurity = false, isOfEntry = false }) => {
    const error = problems.add(path, message);
    faults.push(error);
    if (isSecurity) securityFault ??= error;
    if (isOfEntry) entryFaults.add(error);
  };

  if (kind !== "GatewayPolicy") fault(["kind"], "expected GatewayPolicy", {});
  if (apiVersion !== POLICY_API_VERSION) fault(["apiVersion"], `expected ${POLICY_API_VERSION}`, {});
  if (name === "") fault(["metadata", "name"], "required field is missing", {});
  if (context.isDuplicate) fault(["metadata", "name"], "another GatewayPolicy has this name", {});
  const isRefused = faults.length > 0;

  const { outcomes, targets, meant, repeated } = resolveTargets(spec, { namespace, name }, context, problems);
  if (outcomes.length === 0) fault(["spec", "targetRefs"], "a list with at least one target is required", {});
  const validParts = checkParts(spec, context.parts, document, fault, context.cluster);

  const attachments: Attachment[] = [];
  const closures: Closure[] = [];
  const tcpNotes = new Set<string>();
  const source = policySource(document);
  for (const part of isRefused ? [] : validParts) {
    for (const target of targets) {
      for (const { definition, written, config } of part.policies) {
        if (!definition.scopes.includes(target.scope)) {
          fault(part.path, `cannot apply to a ${target.reference.kind} (${referenceText(target.reference)})`, part);
          continue;
        }
        for (const targetName of target.tcpNames ?? []) {
          const message = `${definition.kind} ${tcpRefusal(target)}`;
          const closed = part.isSecurity ? "; they reject all connections" : "";
          tcpNotes.add(`${pathText(part.path)}: ${message}${closed}`);
          if (part.isSecurity)
            closures.push({ target: { kind: target.scope, name: targetName }, document, reason: message });
        }
        for (const targetName of target.names) {
          const taken = context.takenKinds({ kind: target.scope, name: targetName });
          const reserved = context.reservedKind?.(targetName, definition.kind);
          const before = taken.get(definition.kind) ?? (reserved === source ? undefined : reserved);
          if (before !== undefined && !STACKING_KINDS.has(definition.kind)) {
            const message = `${referenceText(target.reference)} already has ${definition.kind} from ${before}`;
            if (!faults.some((known) => known.message === message)) fault(part.path, message, {});
            continue;
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
  if (attachments.length === 0 && tcpNotes.size > 0)
    fault(["spec"], `policies ${tcpRefusal(targets.find(({ tcpNames = [] }) => tcpNames.length > 0))}`, {});
  // The targets of a rejected document with a security policy reject all requests.
  if (isRefused && securityFault === undefined && validParts.some(({ isSecurity }) => isSecurity))
    securityFault = faults[0];
  const isProtection = securityFault !== undefined || validParts.some(({ isSecurity }) => isSecurity);
  const isBlocked = securityFault !== undefined || (isProtection && meant.length > 0);
  closures.push(
    ...(securityFault === undefined ? [] : closuresOf(targets, document, securityFault)),
    ...(isProtection && meant.length > 0
      ? closuresOf(meant, document, problems.add(["spec", "targetRefs"], "the name of a protected target is wrong"))
      : []),
  );

  const shownSpec = context.shown(value.spec);
  const metadata = metadataOf(value, { namespace, name }, shownSpec, context.previous);
  // A policy without targets is an error, but targets that do not exist yet may appear later.
  const hasValidPart =
    !isRefused && outcomes.length > 0 && (targets.length === 0 ? validParts.length > 0 : attachments.length > 0);
  const accepted = withNotes(acceptance(faults, entryFaults, hasValidPart, isBlocked), [...repeated, ...tcpNotes]);
  const self: ObjectReference = { group: POLICY_API_GROUP, kind: "GatewayPolicy", namespace, name };
  return {
    resource: {
      apiVersion: apiVersion === "" ? POLICY_API_VERSION : apiVersion,
      kind: "GatewayPolicy",
      metadata,
      spec: shownSpec,
      status: {
        ancestors: statusOf(self, { accepted, isAttached: hasValidPart || accepted.isTrue }, outcomes, {
          generation: metadata.generation,
          nowMs: context.nowMs,
          previous: context.previous,
        }),
      },
    },
    attachments,
    closures,
  };
}

export function policySource(document: ResourceDocument): string {
  return `GatewayPolicy ${fullName(document)}`;
}

function tcpRefusal(target: ResolvedTarget | undefined): string {
  return target?.scope === "backend"
    ? "cannot apply to connections of TLSRoutes and TCPRoutes"
    : "cannot apply to listeners of the protocols TLS and TCP";
}

function closuresOf(targets: readonly ResolvedTarget[], document: ResourceDocument, because: ConfigError): Closure[] {
  return targets.flatMap(({ scope, names, tcpNames = [] }) =>
    [...names, ...tcpNames].map((name) => ({ target: { kind: scope, name }, document, reason: because.toLine() })),
  );
}

function acceptance(
  faults: readonly ConfigError[],
  entryFaults: ReadonlySet<ConfigError>,
  hasValidPart: boolean,
  isClosed: boolean,
): Verdict {
  if (faults.length === 0) return ACCEPTED;
  // In the log, paths start with the document's name, which a status does not need.
  const lines = faults.map(({ path, message }) => `${path.slice(path.indexOf(": ") + 2)}: ${message}`);
  const message = `${lines.join("; ")}${isClosed ? "; the targets are blocked until this is fixed" : ""}`;
  // An unknown field has no effect, so the policy is marked as invalid for its author to see. Its other parts apply.
  const isUnknown = faults.some((fault) => fault.message.startsWith("unknown field") && !entryFaults.has(fault));
  if (hasValidPart && isUnknown) return { isTrue: false, reason: "Invalid", message: `${message}; other parts apply` };
  if (hasValidPart && entryFaults.size > 0)
    return { isTrue: true, reason: "PartiallyInvalid", message: `${message}; the other entries apply` };
  if (hasValidPart) return { isTrue: true, reason: "PartiallyValid", message };
  const isConflict = faults.every((fault) => / already has \S+ from /.test(fault.message));
  return { isTrue: false, reason: isConflict ? "Conflicted" : "Invalid", message };
}

function withNotes(verdict: Verdict, notes: readonly string[]): Verdict {
  return notes.length === 0 ? verdict : { ...verdict, message: [verdict.message, ...notes].join("; ") };
}

/** The API server sets `generation`. For documents in files, each change of the redacted spec increments it. */
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

interface ValidPart {
  readonly path: Path;
  readonly isSecurity: boolean;
  readonly policies: readonly {
    readonly definition: PolicyDefinition;
    readonly written: unknown;
    readonly config: unknown;
  }[];
}

type Fault = (
  path: Path,
  message: string,
  /** `isOfEntry` means that the other entries of the policy apply. */
  of: { readonly isSecurity?: boolean; readonly isOfEntry?: boolean },
) => void;

function checkParts(
  spec: Readonly<Record<string, unknown>>,
  parts: readonly Part[],
  document: ResourceDocument,
  fault: Fault,
  cluster: Cluster | undefined,
): ValidPart[] {
  const { found, unknown } = findParts(spec, parts);
  for (const { path, known } of unknown) {
    // An unknown field may be a misspelled security policy, so it blocks the targets. `targetRef` is not a policy.
    const field = String(path.at(-1));
    fault(path, `unknown field${suggestion(field, known)}`, {
      isSecurity: path.length > 2 || field !== "targetRef",
    });
  }
  if (found.length === 0 && unknown.length === 0)
    fault(["spec"], "one of `traffic`, `backend` is required, with at least one policy", {});

  const valid: ValidPart[] = [];
  const referrer = { group: POLICY_API_GROUP, kind: "GatewayPolicy", namespace: identityOf(document).namespace };
  for (const { part, path, value: written } of found) {
    const confined = cluster && confinedValues(part.schema, written, path, { cluster, document, referrer });
    const value = confined ? confined.value : written;
    const refused = confined?.faults ?? [];
    const faults = refused.length > 0 ? refused : invalidFields(part, document, value, path);
    let accepted = value;
    if (faults.length > 0) {
      const usable = part.entries && validEntries(part.schema, withoutRefused(value, refused, path), part.entries);
      for (const { path: at, message } of faults) fault(at, message, { ...part, isOfEntry: usable !== undefined });
      if (usable === undefined) continue;
      for (const at of usable.dropped) {
        const whole = [...path, ...at];
        if (!faults.some((known) => isBelow(known.path, whole))) fault(whole, "is not valid", { isOfEntry: true });
      }
      accepted = usable.value;
    }
    const policies: ValidPart["policies"][number][] = [];
    for (const { definition, written: own } of part.toPolicies(accepted)) {
      const parsed = definition.schema.safeParse(own);
      if (parsed.success) policies.push({ definition, written: own, config: parsed.data });
      else for (const issue of parsed.error.issues) fault(path, issue.message, part);
    }
    if (policies.length > 0) valid.push({ path, isSecurity: part.isSecurity, policies });
  }
  return valid;
}

function invalidFields({ schema }: Part, document: ResourceDocument, value: unknown, path: Path) {
  const checked = validate(schema, document, value, path);
  return checked.ok ? [] : checked.problems.map((one) => ({ path: pathBelow(path, one.path), message: one.message }));
}

/** Replaces the values that a document of a cluster must not use by values that no schema accepts. */
function withoutRefused(value: unknown, refused: readonly { readonly path: Path }[], base: Path): unknown {
  let left = value;
  for (const { path } of refused) left = replaced(left, path.slice(base.length), Symbol("refused"));
  return left;
}

function replaced(value: unknown, path: Path, by: unknown): unknown {
  const [first, ...rest] = path;
  if (first === undefined || typeof value !== "object" || value === null) return by;
  if (Array.isArray(value)) return value.map((item, i) => (i === first ? replaced(item, rest, by) : item));
  return { ...value, [first]: replaced((value as Readonly<Record<string, unknown>>)[first], rest, by) };
}

function isBelow(path: Path, base: Path): boolean {
  return base.every((step, i) => path[i] === step);
}

/** The validator reports the whole path as a string, so the steps below the part are parsed from it. */
function pathBelow(path: Path, text: string): Path {
  const prefix = pathText(path);
  const rest = text.startsWith(prefix) ? text.slice(prefix.length).replace(/^\./, "") : "";
  return rest === ""
    ? path
    : [
        ...path,
        ...rest
          .split(/[.[\]]+/)
          .filter((step) => step !== "")
          .map((step) => (/^\d+$/.test(step) ? Number(step) : step)),
      ];
}
