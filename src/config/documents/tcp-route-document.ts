/**
 * Translates a TLSRoute or TCPRoute document to routes that forward connections.
 */
import type { Path } from "../text/value-path.ts";
import { fieldsOf, listOf, textOf } from "../text/value-shapes.ts";
import {
  fullName,
  identityOf,
  type ObjectReference,
  type ProblemList,
  type ResourceDocument,
  type RouteOutcome,
  type Verdict,
  type WrittenTcpBackend,
  type WrittenTcpRoute,
} from "./documents.ts";
import { findParents, NO_DEFAULT_GATEWAYS, type RouteContext } from "./route-document.ts";

interface TranslatedTcpRoute {
  readonly routes: readonly WrittenTcpRoute[];
  readonly gateways: readonly ObjectReference[];
  readonly outcome: RouteOutcome;
}

const RESOLVED: Verdict = { isTrue: true, reason: "ResolvedRefs", message: "All references resolved" };
const ROUTE_FIELDS = new Set(["parentRefs", "hostnames", "rules", "useDefaultGateways"]);
const RULE_FIELDS = new Set(["name", "backendRefs"]);

export function translateTcpRoute(
  document: ResourceDocument,
  context: RouteContext,
  problems: ProblemList,
): TranslatedTcpRoute {
  const { namespace, kind } = identityOf(document);
  const spec = fieldsOf(fieldsOf(document.value).spec);
  const { findBackend, isCluster } = context;
  const found = findParents(spec, { ...context, namespace, kind, problems });
  const [rule, ...otherRules] = listOf(spec.rules).map(fieldsOf);
  const [unknown] = [
    ...Object.keys(spec).filter((field) => !ROUTE_FIELDS.has(field)),
    ...Object.keys(rule ?? {}).filter((field) => !RULE_FIELDS.has(field)),
    ...(otherRules.length === 0 ? [] : ["rules[1]"]),
  ];
  const unsupported = rule === undefined ? "a rule is required" : unknown && `${unknown} is not supported`;
  if (unsupported !== undefined) problems.add(["spec"], `${unsupported}; its connections are rejected`);

  let unresolved: Verdict | undefined;
  const backends = listOf(rule?.backendRefs).map((reference, i): WrittenTcpBackend => {
    const { weight = 1 } = fieldsOf(reference);
    const path: Path = ["spec", "rules", 0, "backendRefs", i];
    const backend = findBackend(fieldsOf(reference), namespace);
    const close = (reason: string, message: string): WrittenTcpBackend => {
      problems.add(path, `${message}; its connections are rejected`);
      unresolved ??= { isTrue: false, reason, message };
      return { name: "", isService: false, weight: Number(weight), isClosed: true };
    };
    if ("reason" in backend) return close(backend.reason, backend.message);
    const { service, host, policies, ...others } = backend.backend as Readonly<Record<string, unknown>>;
    if (backend.closed !== undefined) return close("UnsupportedValue", backend.closed);
    // The bytes must not reach a server in plain text that expects TLS. A client of a TLSRoute in mode Passthrough does
    // TLS itself, but the route does not determine the mode of its listeners.
    if (policies !== undefined)
      return close("UnsupportedValue", `${kind} cannot forward to a Service with a BackendTLSPolicy`);
    const name = isCluster ? fieldsOf(service).name : host;
    if (typeof name !== "string" || Object.keys(others).some((field) => field !== "protocol"))
      return close("InvalidKind", `${kind} can forward to a Service only`);
    const use = { reference: backend.reference, portName: backend.portName, policyKinds: new Map<string, string>() };
    return { name, isService: isCluster, weight: Number(weight), isClosed: false, use };
  });

  const ruleName = textOf(rule?.name);
  const name = `${kind} ${fullName(document)}${ruleName === undefined ? "" : `/${ruleName}`}`;
  // This gateway has no default Gateways, so only the parents serve the route.
  const isIgnored = (textOf(spec.useDefaultGateways) ?? "None") !== "None";
  return {
    routes: found.servedBy.flatMap(({ section, hostnames }) =>
      section === undefined
        ? []
        : [{ name, part: section, hostnames, backends: unsupported === undefined ? backends : [] }],
    ),
    gateways: found.references,
    outcome: {
      document,
      parents: found.parents.map(({ parentRef, accepted }) => ({
        parentRef,
        accepted:
          accepted.isTrue && unsupported !== undefined
            ? { isTrue: false, reason: "UnsupportedValue", message: unsupported }
            : accepted,
        resolvedRefs: unresolved ?? RESOLVED,
        partiallyInvalid: isIgnored ? NO_DEFAULT_GATEWAYS : undefined,
      })),
    },
  };
}
