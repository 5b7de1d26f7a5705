/**
 * Computes the status of a GatewayPolicy (spec 2.6) for each Gateway that it reaches and each target that it does not
 * reach.
 */
import { escapeLines } from "../../base/safe-text.ts";
import {
  type AncestorStatus,
  CONTROLLER_NAME,
  type Condition,
  type ObjectReference,
  type PolicyResource,
  referenceText,
  type Verdict,
} from "./documents.ts";

/** The Gateway API allows at most 16 ancestors. */
const MAX_ANCESTORS = 16;
const MAX_MESSAGE_BYTES = 32_768;

export interface TargetOutcome {
  readonly reference: ObjectReference;
  /** Contains the Gateways through which the target is reached, and is empty if the policy is not attached. */
  readonly gateways: readonly ObjectReference[];
  readonly missing: Verdict | undefined;
  /** Overrides the policy's own acceptance if the reference itself is invalid. */
  readonly accepted?: Verdict;
}

interface StatusContext {
  readonly generation: number;
  readonly nowMs: number;
  readonly previous: PolicyResource | undefined;
}

export const ACCEPTED: Verdict = { isTrue: true, reason: "Valid", message: "Policy accepted" };
const ATTACHED: Verdict = { isTrue: true, reason: "Attached", message: "Attached to all targets" };
const NOT_ATTACHED: Verdict = {
  isTrue: false,
  reason: "Invalid",
  message: "Not attached: no part of the policy is valid",
};

export function statusOf(
  policy: ObjectReference,
  { accepted, isAttached }: { readonly accepted: Verdict; readonly isAttached: boolean },
  outcomes: readonly TargetOutcome[],
  { generation, nowMs, previous }: StatusContext,
): AncestorStatus[] {
  const ancestors = new Map<string, { reference: ObjectReference; accepted: Verdict; attached: Verdict }>();
  const add = (reference: ObjectReference, isAccepted: Verdict, attached: Verdict): void => {
    const key = `${reference.group} ${referenceText(reference)}`;
    const before = ancestors.get(key);
    // Several targets may reach the same Gateway, in which case a failure takes precedence.
    if (before === undefined || (before.attached.isTrue && !attached.isTrue))
      ancestors.set(key, { reference, accepted: isAccepted, attached });
  };

  const reached = outcomes.filter(({ missing }) => missing === undefined);
  for (const outcome of outcomes) {
    const isAccepted = outcome.accepted ?? accepted;
    if (outcome.missing) add(outcome.reference, isAccepted, outcome.missing);
    else
      for (const gateway of outcome.gateways)
        add(gateway, isAccepted, isAttached ? attachedTo(reached, outcomes) : NOT_ATTACHED);
  }
  // Without targets, the policy itself is the ancestor.
  if (ancestors.size === 0)
    add(policy, accepted, { ...NOT_ATTACHED, message: "Not attached: the policy has no usable target" });

  // Failures come first, because a kubectl column shows only the first entry.
  const rank = ({ accepted: isAccepted, attached }: { accepted: Verdict; attached: Verdict }): string =>
    `${Number(isAccepted.isTrue)}${Number(attached.isTrue)}`;
  const order = (one: { reference: ObjectReference; accepted: Verdict; attached: Verdict }): string =>
    `${rank(one)} ${referenceText(one.reference)}`;
  return [...ancestors.values()]
    .sort((one, other) => (order(one) < order(other) ? -1 : 1))
    .slice(0, MAX_ANCESTORS)
    .map(({ reference, accepted: isAccepted, attached }) => ({
      ancestorRef: reference,
      controllerName: CONTROLLER_NAME,
      conditions: [
        condition("Accepted", isAccepted, reference, generation, nowMs, previous),
        condition("Attached", attached, reference, generation, nowMs, previous),
      ],
    }));
}

function attachedTo(reached: readonly TargetOutcome[], outcomes: readonly TargetOutcome[]): Verdict {
  if (reached.length === outcomes.length) return ATTACHED;
  const missing = outcomes.flatMap((outcome) => (outcome.missing ? [outcome.missing.message] : []));
  return {
    isTrue: true,
    reason: "PartiallyAttached",
    message: `Attached to ${reached.length} of ${outcomes.length} targets: ${missing.join("; ")}`,
  };
}

/** The API server rejects a status with a longer message. `kubectl` prints it, and it can quote a document. */
export function conditionMessage(message: string): string {
  const shown = escapeLines(message);
  if (Buffer.byteLength(shown) <= MAX_MESSAGE_BYTES) return shown;
  const end = " … (cut)";
  const room = Buffer.from(shown).subarray(0, MAX_MESSAGE_BYTES - Buffer.byteLength(end));
  // The cut may leave an incomplete character, which is removed.
  return `${new TextDecoder().decode(room).replace(/\ufffd$/, "")}${end}`;
}

function condition(
  type: Condition["type"],
  verdict: Verdict,
  reference: ObjectReference,
  observedGeneration: number,
  nowMs: number,
  previous: PolicyResource | undefined,
): Condition {
  const status = verdict.isTrue ? "True" : "False";
  const before = previous?.status.ancestors
    .find(
      ({ ancestorRef }) =>
        ancestorRef.group === reference.group && referenceText(ancestorRef) === referenceText(reference),
    )
    ?.conditions.find((one) => one.type === type);
  const lastTransitionTime =
    before?.status === status ? before.lastTransitionTime : `${new Date(nowMs).toISOString().slice(0, 19)}Z`;
  return {
    type,
    status,
    reason: verdict.reason,
    message: conditionMessage(verdict.message),
    observedGeneration,
    lastTransitionTime,
  };
}
