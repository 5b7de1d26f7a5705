/**
 * Reads one listener of a Gateway or ListenerSet.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { checkCertificates } from "../../http/certificates.ts";
import type { Path } from "../text/value-path.ts";
import { type Fields, fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";
import type { Cluster, Referrer } from "./cluster.ts";
import {
  GATEWAY_API_GROUP,
  POLICY_API_GROUP,
  type ProblemList,
  type ResourceDocument,
  type Verdict,
} from "./documents.ts";

/** Files cannot refer to Secrets, so these keys of `tls.options` name the certificate files of an HTTPS listener. */
const CERT_OPTION = `${POLICY_API_GROUP}/cert`;
const KEY_OPTION = `${POLICY_API_GROUP}/key`;

export const LISTENER_ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "Listener accepted" };
export const RESOLVED: Verdict = { isTrue: true, reason: "ResolvedRefs", message: "All references resolved" };
const ROUTE_KINDS = lookupTable<readonly string[]>({
  HTTP: ["HTTPRoute", "GRPCRoute"],
  HTTPS: ["HTTPRoute", "GRPCRoute"],
  TLS: ["TLSRoute"],
  TCP: ["TCPRoute"],
});

interface Certificate {
  readonly cert: string;
  readonly key: string;
}

export interface ReadListener {
  readonly sectionName: string;
  readonly path: Path;
  readonly port: number;
  readonly protocol: string;
  readonly hostname: string | undefined;
  /** Set for a listener that terminates TLS without problems in its certificates. */
  readonly tls: readonly Certificate[] | undefined;
  readonly isPassthrough: boolean;
  readonly supportedKinds: readonly { readonly group: string; readonly kind: string }[];
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  admits(namespace: string, kind: string): boolean;
}

export interface ListenerContext {
  /** Reads the certificates. For a ListenerSet, it is the document of its Gateway. */
  readonly document: ResourceDocument;
  readonly kind: "Gateway" | "ListenerSet";
  readonly namespace: string;
  readonly cluster: Cluster | undefined;
  readonly problems: ProblemList;
}

/** Returns undefined if the listener is not an object, or has no name or no valid port. */
export function readListener(written: unknown, path: Path, context: ListenerContext): ReadListener | undefined {
  const { problems } = context;
  if (!isObject(written)) {
    problems.add(path, "expected an object");
    return undefined;
  }
  const { name, port, protocol } = written;
  const sectionName = textOf(name);
  if (sectionName === undefined) {
    problems.add([...path, "name"], "required field is missing");
    return undefined;
  }
  if (typeof port !== "number" || !Number.isInteger(port) || port < 0 || port > 65_535) {
    problems.add([...path, "port"], "expected a port number");
    return undefined;
  }
  const routeKinds = ROUTE_KINDS[String(protocol)];
  const isPassthrough = protocol === "TLS" && fieldsOf(written.tls).mode === "Passthrough";
  const hostname = textOf(written.hostname);
  const common = { sectionName, path, port, protocol: String(protocol), hostname, isPassthrough };
  if (routeKinds === undefined) {
    const message = `${String(protocol)} is not supported: use HTTP, HTTPS, TLS, or TCP`;
    problems.add([...path, "protocol"], message);
    const accepted = { isTrue: false, reason: "UnsupportedProtocol", message };
    return { ...common, tls: undefined, supportedKinds: [], accepted, resolvedRefs: RESOLVED, admits: () => false };
  }
  const isNamedTcp = protocol === "TCP" && hostname !== undefined && hostname !== "";
  const unsupported = isNamedTcp
    ? "hostname is not supported for the protocol TCP"
    : context.cluster
      ? unsupportedListenerField(written)
      : undefined;
  if (unsupported !== undefined) problems.add(path, unsupported);
  const kinds = readKinds(written, path, routeKinds, context);
  const isTls = protocol === "HTTPS" || (protocol === "TLS" && !isPassthrough);
  const tls = isTls ? readTls(fieldsOf(written.tls), [...path, "tls"], context) : undefined;
  const admitted = readAdmission(written, path, context);
  return {
    ...common,
    tls: tls && "reason" in tls ? undefined : tls,
    supportedKinds: kinds.supported,
    accepted:
      unsupported === undefined
        ? LISTENER_ACCEPTED
        : { isTrue: false, reason: "UnsupportedValue", message: unsupported },
    resolvedRefs: tls && "reason" in tls ? tls : kinds.verdict,
    admits: (namespace, kind) => kinds.supported.some((one) => one.kind === kind) && admitted(namespace),
  };
}

const LISTENER_FIELDS = new Set(["name", "hostname", "port", "protocol", "tls", "allowedRoutes"]);

function unsupportedListenerField(written: Fields): string | undefined {
  const { mode: _, certificateRefs: __, ...tls } = fieldsOf(written.tls);
  const { namespaces, kinds: ___, ...allowed } = fieldsOf(written.allowedRoutes);
  const { from: _from, selector: _selector, ...namespaceFields } = fieldsOf(namespaces);
  const [field] = [
    ...Object.keys(written).filter((one) => !LISTENER_FIELDS.has(one)),
    ...Object.keys(tls).map((one) => `tls.${one}`),
    ...Object.keys(allowed).map((one) => `allowedRoutes.${one}`),
    ...Object.keys(namespaceFields).map((one) => `allowedRoutes.namespaces.${one}`),
  ];
  return field === undefined ? undefined : `${field} is not supported`;
}

function readKinds(written: Fields, path: Path, names: readonly string[], { problems }: ListenerContext) {
  const all = names.map((kind) => ({ group: GATEWAY_API_GROUP, kind }));
  const requested = listOf(fieldsOf(written.allowedRoutes).kinds).map(fieldsOf);
  if (requested.length === 0) return { supported: all, verdict: RESOLVED };
  const isNamed = ({ group = GATEWAY_API_GROUP, kind }: Fields, known: (typeof all)[number]): boolean =>
    kind === known.kind && group === known.group;
  const unknown = requested.filter((one) => !all.some((known) => isNamed(one, known)));
  const supported = all.filter((known) => requested.some((one) => isNamed(one, known)));
  if (unknown.length === 0) return { supported, verdict: RESOLVED };
  const message = `${unknown.map(({ kind }) => String(kind)).join(", ")} is not supported: use ${names.join(" or ")}`;
  problems.add([...path, "allowedRoutes", "kinds"], message);
  return { supported, verdict: { isTrue: false, reason: "InvalidRouteKinds", message } };
}

function readAdmission(written: Fields, path: Path, context: ListenerContext): (namespace: string) => boolean {
  const namespaces = fieldsOf(fieldsOf(written.allowedRoutes).namespaces);
  const from = textOf(namespaces.from) ?? "Same";
  if (from === "Selector" && !context.cluster)
    context.problems.add(
      [...path, "allowedRoutes", "namespaces", "from"],
      "Selector is not supported: only routes of the same namespace are served",
    );
  return (namespace) => isFromNamespace({ ...namespaces, from }, namespace, context);
}

/** In files, which have no labels of namespaces, `Selector` means `Same`. */
export function isFromNamespace(
  { from, selector }: Fields,
  namespace: string,
  { namespace: own, cluster }: Pick<ListenerContext, "namespace" | "cluster">,
): boolean {
  if (from === "All") return true;
  if (from === "None") return false;
  return from === "Selector" && cluster ? cluster.namespaceFits(namespace, selector) : namespace === own;
}

function readTls(tls: Fields, path: Path, context: ListenerContext): readonly Certificate[] | Verdict {
  const invalid = (at: Path, reason: string, message: string): Verdict => {
    context.problems.add(at, message);
    return { isTrue: false, reason, message };
  };
  if (!context.cluster) {
    const options = fieldsOf(tls.options);
    const cert = textOf(options[CERT_OPTION]);
    const key = textOf(options[KEY_OPTION]);
    if (cert !== undefined && key !== undefined) return [{ cert, key }];
    const message = `certificateRefs are not supported: set the files in tls.options as ${CERT_OPTION} and ${KEY_OPTION}`;
    return invalid(path, "InvalidCertificateRef", message);
  }
  if ((textOf(tls.mode) ?? "Terminate") !== "Terminate")
    return invalid([...path, "mode"], "InvalidCertificateRef", `the mode ${String(tls.mode)} is not supported`);
  const references = listOf(tls.certificateRefs).map(fieldsOf);
  if (references.length === 0) return invalid(path, "InvalidCertificateRef", "certificateRefs are needed");
  const certificates: Certificate[] = [];
  for (const [i, reference] of references.entries()) {
    const found = certificateOf(reference, context.cluster, context);
    if ("reason" in found) return invalid([...path, "certificateRefs", i], found.reason, found.message);
    certificates.push(found);
  }
  return certificates;
}

function certificateOf(
  reference: Fields,
  cluster: Cluster,
  { document, kind, namespace }: ListenerContext,
): Certificate | Verdict {
  const found = readCertificate(reference, cluster, { group: GATEWAY_API_GROUP, kind, namespace });
  if ("reason" in found) return found;
  const grant = (field: string, text: string): string =>
    document.confined?.grant(`${found.secret}/${field}`, text) ?? "";
  return { cert: grant("tls.crt", found.cert), key: grant("tls.key", found.key) };
}

/** Returns the PEM texts in a Secret. */
export function readCertificate(
  reference: Fields,
  cluster: Cluster,
  from: Referrer,
): (Certificate & { readonly secret: string }) | Verdict {
  const { group = "", kind = "Secret" } = reference;
  const name = textOf(reference.name) ?? "";
  const namespace = textOf(reference.namespace) ?? from.namespace;
  const no = (reason: string, message: string): Verdict => ({ isTrue: false, reason, message });
  if (group !== "" || kind !== "Secret")
    return no("InvalidCertificateRef", `${String(kind)} is not supported: use Secret`);
  const shown = `Secret ${namespace}/${name}`;
  if (!cluster.mayRefer(from, { group: "", kind: "Secret", namespace, name }))
    return no("RefNotPermitted", `${shown} is in another namespace, whose ReferenceGrants do not allow this`);
  const secret = cluster.secret(namespace, name);
  const cert = secret?.get("tls.crt");
  const key = secret?.get("tls.key");
  if (secret === undefined) return no("InvalidCertificateRef", `${shown} was not found`);
  if (!cert || !key) return no("InvalidCertificateRef", `${shown} has no tls.crt and tls.key`);
  try {
    checkCertificates({ cert, key });
  } catch (error) {
    return no("InvalidCertificateRef", `${shown}: ${(error as Error).message}`);
  }
  return { cert, key, secret: `${namespace}/${name}` };
}
