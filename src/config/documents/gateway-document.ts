/**
 * Translates a Gateway document to gateways of the standalone configuration, one per port. Listeners that cannot be
 * served are reported and skipped.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { checkCertificates } from "../../http/certificates.ts";
import type { Path } from "../text/value-path.ts";
import { type Fields, fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";
import { readRoot } from "./backend-document.ts";
import type { Cluster } from "./cluster.ts";
import {
  DEFAULT_NAMESPACE,
  GATEWAY_API_GROUP,
  type GatewayOutcome,
  identityOf,
  type ListenerOutcome,
  POLICY_API_GROUP,
  type ProblemList,
  type ResourceDocument,
  type Verdict,
  type WrittenGateway,
  type WrittenSection,
  type WrittenTcpPart,
} from "./documents.ts";
import { isVerdict, readParameters } from "./gateway-parameters.ts";
import { type GatewayListener, type GatewayTarget, gatewayReference, labelsOf } from "./targets.ts";

interface TranslatedGateway {
  readonly target: GatewayTarget;
  readonly gateways: readonly WrittenGateway[];
  readonly outcome: GatewayOutcome;
}

const NO_CONFLICT: Verdict = { isTrue: false, reason: "NoConflicts", message: "No conflicts" };
const ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "Gateway accepted" };

/** Adds the ports that this document uses to `takenPorts`. */
export function translateGateway(
  document: ResourceDocument,
  takenPorts: Set<number>,
  problems: ProblemList,
  cluster: Cluster | undefined,
  hasSections: boolean,
): TranslatedGateway {
  const { namespace, name } = identityOf(document);
  const spec = fieldsOf(fieldsOf(document.value).spec);
  const written = listOf(spec.listeners);
  const refused = cluster ? refusedField(spec, namespace, cluster) : undefined;
  if (refused) problems.add(["spec"], refused.message);
  if (written.length === 0) problems.add(["spec", "listeners"], "a list with at least one listener is required");
  const context = { document, namespace, cluster, problems };
  const read = written.flatMap((listener, i) => {
    const path = ["spec", "listeners", i];
    const found = readListener(listener, path, context);
    return found ? [{ ...found, path }] : [];
  });
  const conflicts = cluster || read.some(isTcp) ? conflictsOf(read) : new Map<ReadListener, Verdict>();
  const nameOf = namesOfPorts(
    read,
    cluster ? `${namespace}/${name}` : shortName(namespace, name),
    cluster !== undefined,
  );
  const gateways = new Map<number, WrittenGateway>();
  const listeners: GatewayListener[] = [];
  const outcomes: ListenerOutcome[] = [];

  for (const one of read) {
    const conflicted = conflicts.get(one) ?? NO_CONFLICT;
    if (conflicted.isTrue) problems.add(one.path, conflicted.message);
    let accepted = conflicted.isTrue ? { ...conflicted, isTrue: false } : one.accepted;
    const validation = isTerminating(one) ? clientValidation(spec, one.port, context) : undefined;
    if (accepted.isTrue && validation && !validation.accepted.isTrue) accepted = validation.accepted;
    const isUsable = accepted.isTrue && !refused && (!isTerminating(one) || one.tls !== undefined);
    if (isUsable && !gateways.has(one.port)) {
      if (takenPorts.has(one.port)) {
        const user = cluster ? "the data plane itself" : "another gateway";
        const message = `port ${one.port} is already used by ${user}`;
        problems.add([...one.path, "port"], message);
        accepted = { isTrue: false, reason: "PortUnavailable", message };
      } else {
        if (one.port !== 0) takenPorts.add(one.port);
        const sharing = read.filter((other) => other.port === one.port && !conflicts.has(other));
        const sections = hasSections && sharing.length > 1 ? sectionsOf(sharing, nameOf(one)) : undefined;
        const written = isTcp(one)
          ? writtenTcpGateway(one, nameOf(one), document, sharing, clientValidation(spec, one.port, context))
          : writtenGateway(one, nameOf(one), document, sharing, validation?.ca);
        gateways.set(one.port, { ...written, ...(sections && !isTcp(one) ? { sections } : {}) });
      }
    }
    const written = isUsable ? gateways.get(one.port) : undefined;
    const outcome: ListenerOutcome = {
      name: one.sectionName,
      supportedKinds: one.supportedKinds,
      accepted,
      resolvedRefs: one.resolvedRefs.isTrue ? (validation?.resolvedRefs ?? one.resolvedRefs) : one.resolvedRefs,
      conflicted,
      attachedRoutes: 0,
    };
    outcomes.push(outcome);
    listeners.push({
      sectionName: one.sectionName,
      gateway: written?.name,
      section: isTcp(one)
        ? written && tcpPartName(written.name, one)
        : written?.sections?.find(({ hostname }) => hostname === sectionHostname(one))?.name,
      isTcp: isTcp(one),
      port: one.port,
      hostname: one.hostname,
      admits: one.admits,
      outcome,
    });
  }
  return {
    target: { reference: gatewayReference(namespace, name), labels: labelsOf(document), listeners },
    gateways: [...gateways.values()],
    outcome: { document, accepted: refused ?? acceptance(outcomes), listeners: outcomes },
  };
}

function shortName(namespace: string, name: string): string {
  return namespace === DEFAULT_NAMESPACE ? name : `${namespace}/${name}`;
}

/** In a cluster, the key under `gateways` contains the port, so that renaming a listener does not change it. */
function namesOfPorts(
  read: readonly ReadListener[],
  prefix: string,
  byPort: boolean,
): (listener: ReadListener) => string {
  const isOne = new Set(read.map(({ port }) => port)).size === 1;
  return ({ port, sectionName }) => {
    if (byPort) return `${prefix}:${port}`;
    return isOne ? prefix : `${prefix}/${sectionName}`;
  };
}

/** In files, listeners of a port may have the same host name. They share a section. */
function sectionsOf(sharing: readonly ReadListener[], gateway: string): WrittenSection[] {
  const sections = new Map<string | undefined, WrittenSection>();
  for (const one of sharing) {
    const hostname = sectionHostname(one);
    if (!sections.has(hostname)) sections.set(hostname, { name: `${gateway}#${one.sectionName}`, hostname });
  }
  return [...sections.values()];
}

function sectionHostname({ hostname }: ReadListener): string | undefined {
  return hostname === "*" ? undefined : hostname?.toLowerCase();
}

function writtenGateway(
  { port, protocol, path }: ReadListener & { readonly path: Path },
  name: string,
  document: ResourceDocument,
  sharing: readonly ReadListener[],
  clientCa: string | undefined,
): WrittenGateway {
  if (protocol !== "HTTPS") return { name, port, protocol: "HTTP", document, path };
  // Each listener on the port presents its own certificate for its host name.
  const certificates = sharing.flatMap(({ tls = [], hostname }) =>
    tls.map((certificate) => ({ ...certificate, ...(hostname === undefined ? {} : { hosts: [hostname] }) })),
  );
  const parts = sharing.flatMap(({ hostname }) => (hostname === undefined ? [] : [hostname.toLowerCase()]));
  const isApart = sharing.length > 1;
  const clientAuth = clientCa === undefined ? {} : { clientAuth: { ca: clientCa, mode: "require" as const } };
  return {
    name,
    port,
    protocol: "HTTPS",
    tls: { certificates, ...(isApart ? { parts } : {}), ...clientAuth },
    document,
    path,
  };
}

function isTcp({ protocol }: ReadListener): boolean {
  return protocol === "TCP" || protocol === "TLS";
}

function isTerminating({ protocol, isPassthrough }: ReadListener): boolean {
  return protocol === "HTTPS" || (protocol === "TLS" && !isPassthrough);
}

function tcpPartName(gateway: string, { sectionName }: ReadListener): string {
  return `${gateway}#${sectionName}`;
}

/** A listener that cannot be served keeps its host name, so that no other listener of the port serves it. */
function writtenTcpGateway(
  { port, protocol, path }: ReadListener & { readonly path: Path },
  name: string,
  document: ResourceDocument,
  sharing: readonly ReadListener[],
  validation: ClientValidation | undefined,
): WrittenGateway {
  const tcp = sharing.map((one): WrittenTcpPart => {
    const part = { name: tcpPartName(name, one), hostname: sectionHostname(one) };
    const closed = { ...part, tls: undefined, closed: `listener ${one.sectionName} is not valid` };
    if (!one.accepted.isTrue) return closed;
    if (!isTerminating(one)) return { ...part, tls: undefined };
    if (one.tls === undefined || validation?.accepted.isTrue === false) return closed;
    const clientAuth =
      validation?.ca === undefined ? {} : { clientAuth: { ca: validation.ca, mode: "require" as const } };
    return { ...part, tls: { certificates: one.tls, ...clientAuth } };
  });
  return { name, port, protocol: protocol === "TLS" ? "TLS" : "TCP", tcp, document, path };
}

/** In a cluster, a Gateway that sets another field is rejected as a whole, unless the value has no effect. */
const GATEWAY_FIELDS = new Set(["gatewayClassName", "listeners", "addresses", "infrastructure", "tls"]);
const LISTENER_FIELDS = new Set(["name", "hostname", "port", "protocol", "tls", "allowedRoutes"]);

function refusedField(spec: Fields, namespace: string, cluster: Cluster): Verdict | undefined {
  const no = (reason: string, message: string): Verdict => ({ isTrue: false, reason, message });
  const unsupported = (field: string): Verdict => no("UnsupportedValue", `spec.${field} is not supported`);
  if (listOf(spec.addresses).length > 0)
    return no("UnsupportedAddress", "spec.addresses is not supported: the Service of the Gateway assigns the address");
  const { labels: _, annotations: __, parametersRef, ...otherInfrastructure } = fieldsOf(spec.infrastructure);
  if (parametersRef !== undefined) {
    const parameters = readParameters(fieldsOf(parametersRef), namespace, cluster);
    if (isVerdict(parameters)) return { ...parameters, message: `spec.infrastructure.${parameters.message}` };
  }
  const [infrastructure] = Object.keys(otherInfrastructure);
  if (infrastructure !== undefined) return unsupported(`infrastructure.${infrastructure}`);
  const [tls] = Object.keys(fieldsOf(spec.tls)).filter((field) => field !== "frontend");
  if (tls !== undefined) return unsupported(`tls.${tls}`);
  const { allowedListeners, defaultScope = "None" } = spec;
  if (
    allowedListeners !== undefined &&
    (textOf(fieldsOf(fieldsOf(allowedListeners).namespaces).from) ?? "None") !== "None"
  )
    return unsupported("allowedListeners");
  if (defaultScope !== "None") return unsupported("defaultScope");
  const [other] = Object.keys(spec).filter(
    (field) => !GATEWAY_FIELDS.has(field) && field !== "allowedListeners" && field !== "defaultScope",
  );
  return other === undefined ? undefined : unsupported(other);
}

interface ClientValidation {
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  readonly ca: string | undefined;
}

/** Reads `spec.tls.frontend`. A listener whose clients cannot be validated as written is not served. */
function clientValidation(spec: Fields, port: number, context: ListenerContext): ClientValidation | undefined {
  const frontend = fieldsOf(fieldsOf(spec.tls).frontend);
  const index = listOf(frontend.perPort).findIndex((one) => fieldsOf(one).port === port);
  const path: Path = ["spec", "tls", "frontend", ...(index < 0 ? ["default"] : ["perPort", index, "tls"])];
  const settings = index < 0 ? frontend.default : fieldsOf(listOf(frontend.perPort)[index]).tls;
  const { validation, ...others } = fieldsOf(settings);
  const no = (reason: string, message: string, resolvedRefs = RESOLVED): ClientValidation => {
    context.problems.add(path, message);
    return { accepted: { isTrue: false, reason, message }, resolvedRefs, ca: undefined };
  };
  const [unknown] = [
    ...Object.keys(frontend).filter((field) => field !== "default" && field !== "perPort"),
    ...Object.keys(others),
  ];
  if (unknown !== undefined) return no("UnsupportedValue", `spec.tls.frontend: ${unknown} is not supported`);
  if (validation === undefined) return undefined;
  const { caCertificateRefs, mode = "AllowValidOnly", ...more } = fieldsOf(validation);
  const [field] = Object.keys(more);
  if (field !== undefined) return no("UnsupportedValue", `validation.${field} is not supported`);
  if (mode !== "AllowValidOnly") return no("UnsupportedValue", `the mode ${String(mode)} is not supported`);
  const { cluster, namespace: own, document } = context;
  if (!cluster)
    return no("NoValidCACertificate", "client certificates of Gateway documents are not supported in files");
  const read = listOf(caCertificateRefs)
    .map(fieldsOf)
    .map((reference) => {
      const namespace = textOf(reference.namespace) ?? own;
      const from = { group: GATEWAY_API_GROUP, kind: "Gateway", namespace: own };
      const to = { group: "", kind: String(reference.kind), namespace, name: String(reference.name) };
      if (!cluster.mayRefer(from, to))
        return {
          isTrue: false,
          reason: "RefNotPermitted",
          message: `${to.kind} ${namespace}/${to.name} is in another namespace, whose ReferenceGrants do not allow this`,
        };
      return readRoot(reference, namespace, cluster);
    });
  const invalid = read.find((one) => typeof one !== "string");
  const resolvedRefs: Verdict =
    invalid === undefined
      ? RESOLVED
      : { ...invalid, reason: invalid.reason === "InvalidKind" ? "InvalidCACertificateKind" : invalid.reason };
  const roots = read.filter((one) => typeof one === "string");
  if (roots.length === 0)
    return no("NoValidCACertificate", invalid?.message ?? "caCertificateRefs are required", resolvedRefs);
  const ca = document.confined?.grant(`${path.join(".")} ca.crt`, roots.join("\n")) ?? "";
  return { accepted: LISTENER_ACCEPTED, resolvedRefs, ca };
}

function acceptance(listeners: readonly ListenerOutcome[]): Verdict {
  const bad = listeners.filter(({ accepted, resolvedRefs }) => !accepted.isTrue || !resolvedRefs.isTrue);
  if (bad.length === 0 && listeners.length > 0) return ACCEPTED;
  const message = `Listeners that are not valid: ${bad.map(({ name }) => name).join(", ") || "there are none"}`;
  // The Gateway is accepted if any listener is, because valid listeners are still served.
  return { isTrue: listeners.some(({ accepted }) => accepted.isTrue), reason: "ListenersNotValid", message };
}

/** Listeners on a port must use one protocol and different host names. All conflicting listeners are rejected. */
function conflictsOf(read: readonly ReadListener[]): Map<ReadListener, Verdict> {
  const conflicts = new Map<ReadListener, Verdict>();
  for (const one of read) {
    if (!one.accepted.isTrue) continue;
    const others = read.filter((other) => other !== one && other.port === one.port && other.accepted.isTrue);
    const protocol = others.find((other) => other.protocol !== one.protocol);
    const hostname = others.find(
      (other) => (other.hostname ?? "").toLowerCase() === (one.hostname ?? "").toLowerCase(),
    );
    const about = (other: ReadListener, what: string): string =>
      `port ${one.port} is also that of listener ${other.sectionName}, which has ${what}`;
    if (protocol)
      conflicts.set(one, { isTrue: true, reason: "ProtocolConflict", message: about(protocol, "another protocol") });
    else if (hostname)
      conflicts.set(one, { isTrue: true, reason: "HostnameConflict", message: about(hostname, "the same hostname") });
  }
  return conflicts;
}

/** Files cannot refer to Secrets, so these keys of `tls.options` name the certificate files of an HTTPS listener. */
const CERT_OPTION = `${POLICY_API_GROUP}/cert`;
const KEY_OPTION = `${POLICY_API_GROUP}/key`;

const LISTENER_ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "Listener accepted" };
const RESOLVED: Verdict = { isTrue: true, reason: "ResolvedRefs", message: "All references resolved" };
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

interface ReadListener {
  readonly sectionName: string;
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

interface ListenerContext {
  readonly document: ResourceDocument;
  readonly namespace: string;
  readonly cluster: Cluster | undefined;
  readonly problems: ProblemList;
}

/** Returns undefined if the listener is not an object, or has no name or no valid port. */
function readListener(written: unknown, path: Path, context: ListenerContext): ReadListener | undefined {
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
  const common = { sectionName, port, protocol: String(protocol), hostname, isPassthrough };
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
