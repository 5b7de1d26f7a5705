/**
 * One listener of a Gateway document: what it asks for, and whether it can be had. A listener that cannot be served is
 * still known by its name: routes may name it, and its status says what is wrong.
 */
import { checkCertificates } from "../../lib/http/certificates.ts";
import type { Cluster } from "../cluster/cluster.ts";
import type { Path } from "../text/value-path.ts";
import { type Fields, fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";
import { GATEWAY_API_GROUP, POLICY_API_GROUP, type ResourceDocument, type Verdict } from "./documents.ts";
import type { ProblemList } from "./problem-list.ts";

/** In files no Secret is read: the files of an HTTPS listener are named by these keys of `tls.options`. */
const CERT_OPTION = `${POLICY_API_GROUP}/cert`;
const KEY_OPTION = `${POLICY_API_GROUP}/key`;

const ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "Listener accepted" };
const RESOLVED: Verdict = { isTrue: true, reason: "ResolvedRefs", message: "All references resolved" };
const ROUTE_KINDS = ["HTTPRoute", "GRPCRoute"].map((kind) => ({ group: GATEWAY_API_GROUP, kind }));

export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

export interface ReadListener {
  readonly sectionName: string;
  readonly port: number;
  readonly protocol: string;
  readonly hostname: string | undefined;
  /** Of an HTTPS listener whose certificates are all there. */
  readonly tls: readonly Certificate[] | undefined;
  readonly supportedKinds: readonly { readonly group: string; readonly kind: string }[];
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  /** Whether routes of this kind and namespace may be served. */
  admits(namespace: string, kind: string): boolean;
}

export interface ListenerContext {
  readonly document: ResourceDocument;
  readonly namespace: string;
  readonly cluster: Cluster | undefined;
  readonly problems: ProblemList;
}

/** undefined: it has neither a name nor a port by which it could be told from others. */
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
  const isServed = protocol === "HTTP" || protocol === "HTTPS";
  const common = { sectionName, port, protocol: String(protocol), hostname: textOf(written.hostname) };
  if (!isServed) {
    const message = `${String(protocol)} is not supported: use HTTP or HTTPS`;
    problems.add([...path, "protocol"], message);
    const accepted = { isTrue: false, reason: "UnsupportedProtocol", message };
    return { ...common, tls: undefined, supportedKinds: [], accepted, resolvedRefs: RESOLVED, admits: () => false };
  }
  const kinds = readKinds(written, path, context);
  const tls = protocol === "HTTPS" ? readTls(fieldsOf(written.tls), [...path, "tls"], context) : undefined;
  const admitted = readAdmission(written, path, context);
  return {
    ...common,
    tls: tls && "reason" in tls ? undefined : tls,
    supportedKinds: kinds.supported,
    accepted: ACCEPTED,
    resolvedRefs: tls && "reason" in tls ? tls : kinds.verdict,
    admits: (namespace, kind) => kinds.supported.some((one) => one.kind === kind) && admitted(namespace),
  };
}

function readKinds(written: Fields, path: Path, { problems }: ListenerContext) {
  const asked = listOf(fieldsOf(written.allowedRoutes).kinds).map(fieldsOf);
  if (asked.length === 0) return { supported: ROUTE_KINDS, verdict: RESOLVED };
  const isNamed = ({ group = GATEWAY_API_GROUP, kind }: Fields, known: (typeof ROUTE_KINDS)[number]): boolean =>
    kind === known.kind && group === known.group;
  const unknown = asked.filter((one) => !ROUTE_KINDS.some((known) => isNamed(one, known)));
  const supported = ROUTE_KINDS.filter((known) => asked.some((one) => isNamed(one, known)));
  if (unknown.length === 0) return { supported, verdict: RESOLVED };
  const message = `${unknown.map(({ kind }) => String(kind)).join(", ")} is not supported: use HTTPRoute or GRPCRoute`;
  problems.add([...path, "allowedRoutes", "kinds"], message);
  return { supported, verdict: { isTrue: false, reason: "InvalidRouteKinds", message } };
}

/** Whether routes of a namespace may be served. */
function readAdmission(
  written: Fields,
  path: Path,
  { namespace: own, cluster, problems }: ListenerContext,
): (namespace: string) => boolean {
  const namespaces = fieldsOf(fieldsOf(written.allowedRoutes).namespaces);
  const from = textOf(namespaces.from) ?? "Same";
  if (from === "All") return () => true;
  if (from === "None") return () => false;
  if (from === "Selector") {
    if (cluster) return (namespace) => cluster.namespaceFits(namespace, namespaces.selector);
    problems.add(
      [...path, "allowedRoutes", "namespaces", "from"],
      "Selector is not supported: only routes of the same namespace are served",
    );
  }
  return (namespace) => namespace === own;
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
  { document, namespace: own }: ListenerContext,
): Certificate | Verdict {
  const { group = "", kind = "Secret" } = reference;
  const name = textOf(reference.name) ?? "";
  const namespace = textOf(reference.namespace) ?? own;
  const no = (reason: string, message: string): Verdict => ({ isTrue: false, reason, message });
  if (group !== "" || kind !== "Secret")
    return no("InvalidCertificateRef", `${String(kind)} is not supported: use Secret`);
  const shown = `Secret ${namespace}/${name}`;
  const from = { group: GATEWAY_API_GROUP, kind: "Gateway", namespace: own };
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
  const grant = (field: string, text: string): string =>
    document.confined?.grant(`${namespace}/${name}/${field}`, text) ?? "";
  return { cert: grant("tls.crt", cert), key: grant("tls.key", key) };
}
