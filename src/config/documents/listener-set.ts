/**
 * Finds the Gateway of a ListenerSet, and decides whether the Gateway allows the set.
 */
import { fieldsOf, textOf } from "../text/value-shapes.ts";
import {
  GATEWAY_API_GROUP,
  identityOf,
  type ObjectReference,
  type ProblemList,
  type ResourceDocument,
  type Verdict,
} from "./documents.ts";
import { isFromNamespace, type ListenerContext } from "./listener-document.ts";
import { gatewayReference } from "./targets.ts";

export interface ListenerSetDocument {
  readonly document: ResourceDocument;
  readonly problems: ProblemList;
}

/** Returns undefined if the parent is not a Gateway. */
export function parentOfSet(document: ResourceDocument): ObjectReference | undefined {
  const { namespace: own } = identityOf(document);
  const { group = GATEWAY_API_GROUP, kind = "Gateway", namespace, name } = fieldsOf(specOfSet(document).parentRef);
  if (group !== GATEWAY_API_GROUP || kind !== "Gateway") return undefined;
  return gatewayReference(textOf(namespace) ?? own, textOf(name) ?? "");
}

function specOfSet(document: ResourceDocument) {
  return fieldsOf(fieldsOf(document.value).spec);
}

const SET_FIELDS = new Set(["parentRef", "listeners"]);
const PARENT_FIELDS = new Set(["group", "kind", "namespace", "name"]);

/** Returns the condition `Accepted` of a set that is not merged into its Gateway. */
export function refusedSet(
  { document }: ListenerSetDocument,
  gatewaySpec: Readonly<Record<string, unknown>>,
  gateway: Pick<ListenerContext, "namespace" | "cluster">,
): Verdict | undefined {
  const { namespaces } = fieldsOf(gatewaySpec.allowedListeners);
  const { from = "None", selector } = fieldsOf(namespaces);
  if (!isFromNamespace({ from, selector }, identityOf(document).namespace, gateway))
    return {
      isTrue: false,
      reason: "NotAllowed",
      message: "The allowedListeners of the Gateway do not allow ListenerSets of this namespace",
    };
  const spec = specOfSet(document);
  const [unknown] = [
    ...Object.keys(spec).filter((field) => !SET_FIELDS.has(field)),
    ...Object.keys(fieldsOf(spec.parentRef))
      .filter((field) => !PARENT_FIELDS.has(field))
      .map((field) => `parentRef.${field}`),
  ];
  if (unknown === undefined || !gateway.cluster) return undefined;
  return { isTrue: false, reason: "Invalid", message: `spec.${unknown} is not supported` };
}
