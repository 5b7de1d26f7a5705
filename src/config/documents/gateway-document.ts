/**
 * Translates a Gateway document and its ListenerSets to gateways of the standalone configuration, one per port.
 * Listeners that cannot be served are reported and skipped.
 */

import { canonicalPattern } from "../../http/host.ts";
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
  type ListenerSetOutcome,
  type ProblemList,
  type ResourceDocument,
  type Verdict,
  type WrittenGateway,
  type WrittenSection,
  type WrittenTcpPart,
} from "./documents.ts";
import { unsupportedAddress } from "./gateway-addresses.ts";
import {
  LISTENER_ACCEPTED,
  type ListenerContext,
  RESOLVED,
  type ReadListener,
  readCertificate,
  readListener,
} from "./listener-document.ts";
import { type ListenerSetDocument, refusedSet } from "./listener-set.ts";
import {
  type ClientCertificate,
  type GatewayListener,
  type GatewayTarget,
  gatewayReference,
  labelsOf,
  listenerSetReference,
} from "./targets.ts";

interface TranslatedGateway {
  readonly target: GatewayTarget;
  readonly setTargets: readonly GatewayTarget[];
  readonly gateways: readonly WrittenGateway[];
  readonly outcome: GatewayOutcome;
  readonly setOutcomes: readonly ListenerSetOutcome[];
}

/** Holds the listeners of the Gateway itself, or of one ListenerSet. */
interface ListenerHolder {
  readonly read: readonly HeldListener[];
  readonly listeners: GatewayListener[];
  readonly outcomes: ListenerOutcome[];
}

interface HeldListener extends ReadListener {
  /** Identifies the listener among those of the Gateway and its ListenerSets. */
  readonly label: string;
  readonly problems: ProblemList;
}

const NO_CONFLICT: Verdict = { isTrue: false, reason: "NoConflicts", message: "No conflicts" };

/** Adds the ports that this document uses to `takenPorts`. The sets with the highest precedence come first. */
export function translateGateway(
  document: ResourceDocument,
  takenPorts: Set<number>,
  problems: ProblemList,
  cluster: Cluster | undefined,
  hasSections: boolean,
  sets: readonly ListenerSetDocument[],
): TranslatedGateway {
  const { namespace, name } = identityOf(document);
  const spec = fieldsOf(fieldsOf(document.value).spec);
  const refused = cluster ? refusedField(spec) : undefined;
  if (refused) problems.add(["spec"], refused.message);
  if (listOf(spec.listeners).length === 0)
    problems.add(["spec", "listeners"], "a list with at least one listener is required");
  const context: ListenerContext = { document, kind: "Gateway", namespace, cluster, problems };
  const toBackends = readClientCertificate(spec, name, context);
  const own = readHolder(spec, "", context);
  const attached = sets.map((set) => {
    const refusal = refusedSet(set, spec, context) ?? (refused && PARENT_NOT_ACCEPTED);
    if (refusal) set.problems.add(["spec"], refusal.message);
    const identity = identityOf(set.document);
    const setContext: ListenerContext = {
      ...context,
      kind: "ListenerSet",
      namespace: identity.namespace,
      problems: set.problems,
    };
    const setSpec = refusal ? {} : fieldsOf(fieldsOf(set.document.value).spec);
    const holder = readHolder(setSpec, `${identity.namespace}/${identity.name}/`, setContext);
    return { ...identity, document: set.document, refusal, holder };
  });
  const holders = [own, ...attached.map(({ holder }) => holder)];
  const read = holders.flatMap((holder) => holder.read);
  const conflicts = conflictsOf(holders, cluster !== undefined);
  const isSectioned = hasSections || attached.some(({ refusal }) => refusal === undefined);
  const nameOf = namesOfPorts(
    own.read,
    cluster ? `${namespace}/${name}` : shortName(namespace, name),
    cluster !== undefined,
  );
  const gateways = new Map<number, WrittenGateway>();

  for (const holder of holders)
    for (const one of holder.read) {
      const conflicted = conflicts.get(one) ?? NO_CONFLICT;
      if (conflicted.isTrue) one.problems.add(one.path, conflicted.message);
      let accepted = conflicted.isTrue ? { ...conflicted, isTrue: false } : one.accepted;
      const validation = isTerminating(one) ? clientValidation(spec, one.port, context) : undefined;
      if (accepted.isTrue && validation && !validation.accepted.isTrue) accepted = validation.accepted;
      const isUsable = accepted.isTrue && !refused && (!isTerminating(one) || one.tls !== undefined);
      if (isUsable && !gateways.has(one.port)) {
        if (takenPorts.has(one.port)) {
          const user = cluster ? "the data plane itself" : "another gateway";
          const message = `port ${one.port} is already used by ${user}`;
          one.problems.add([...one.path, "port"], message);
          accepted = { isTrue: false, reason: "PortUnavailable", message };
        } else {
          if (one.port !== 0) takenPorts.add(one.port);
          const sharing = read.filter((other) => other.port === one.port && !conflicts.has(other));
          const sections = isSectioned && sharing.length > 1 ? sectionsOf(sharing, nameOf(one)) : undefined;
          const place = { document, path: holder === own ? one.path : ["spec", "listeners"] };
          const written = isTcp(one)
            ? writtenTcpGateway(one, nameOf(one), place, sharing, clientValidation(spec, one.port, context))
            : writtenGateway(one, nameOf(one), place, sharing, validation?.ca);
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
      holder.outcomes.push(outcome);
      holder.listeners.push({
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

  const reference = gatewayReference(namespace, name);
  const merged = holders.flatMap(({ listeners }) => listeners);
  const setOutcomes = attached.map((set): ListenerSetOutcome => {
    const { outcomes, read } = set.holder;
    const ports = read.flatMap(({ port }, i) => (outcomes[i]?.accepted.isTrue ? [port] : []));
    // A listener without its certificate serves nothing, so a set needs one with resolved references.
    const isServed = ({ accepted, resolvedRefs }: ListenerOutcome): boolean => accepted.isTrue && resolvedRefs.isTrue;
    const accepted = set.refusal ?? acceptance(outcomes, isServed, "ListenerSet accepted");
    return { document: set.document, gateway: reference, accepted, listeners: outcomes, ports };
  });
  const outcome: GatewayOutcome = {
    document,
    // The Gateway is accepted if any listener is, because valid listeners are still served.
    accepted: refused ?? acceptance(own.outcomes, ({ accepted }) => accepted.isTrue, "Gateway accepted"),
    listeners: own.outcomes,
    ...(sets.length === 0 ? {} : { attachedSets: setOutcomes.filter(({ accepted }) => accepted.isTrue).length }),
    ...(toBackends ? { resolvedRefs: toBackends.resolvedRefs } : {}),
  };
  const clientCertificate = toBackends ? { clientCertificate: toBackends.certificate } : {};
  return {
    target: { reference, labels: labelsOf(document), listeners: own.listeners, merged, ...clientCertificate },
    setTargets: attached.map(({ namespace, name, document, refusal, holder }) => ({
      reference: listenerSetReference(namespace, name),
      gateway: reference,
      labels: labelsOf(document),
      listeners: holder.listeners,
      merged,
      ...clientCertificate,
      ...(refusal ? { refusal: refusal.message } : {}),
    })),
    gateways: [...gateways.values()],
    outcome,
    setOutcomes,
  };
}

const PARENT_NOT_ACCEPTED: Verdict = {
  isTrue: false,
  reason: "ParentNotAccepted",
  message: "The Gateway is not accepted",
};

function readHolder(spec: Fields, prefix: string, context: ListenerContext): ListenerHolder {
  const read = listOf(spec.listeners).flatMap((listener, i) => {
    const found = readListener(listener, ["spec", "listeners", i], context);
    return found ? [{ ...found, label: `${prefix}${found.sectionName}`, problems: context.problems }] : [];
  });
  return { read, listeners: [], outcomes: [] };
}

function shortName(namespace: string, name: string): string {
  return namespace === DEFAULT_NAMESPACE ? name : `${namespace}/${name}`;
}

/** In a cluster, the key under `gateways` contains the port, so that renaming a listener does not change it. */
function namesOfPorts(
  own: readonly HeldListener[],
  prefix: string,
  byPort: boolean,
): (listener: HeldListener) => string {
  const isOne = new Set(own.map(({ port }) => port)).size === 1;
  return (listener) => {
    if (byPort) return `${prefix}:${listener.port}`;
    return isOne && own.includes(listener) ? prefix : `${prefix}/${listener.label}`;
  };
}

/** In files, listeners of a port may have the same host name. They share a section. */
function sectionsOf(sharing: readonly HeldListener[], gateway: string): WrittenSection[] {
  const sections = new Map<string | undefined, WrittenSection>();
  for (const one of sharing) {
    const hostname = sectionHostname(one);
    if (!sections.has(hostname)) sections.set(hostname, { name: `${gateway}#${one.label}`, hostname });
  }
  return [...sections.values()];
}

function sectionHostname({ hostname }: ReadListener): string | undefined {
  return hostname === undefined || hostname === "*" ? undefined : canonicalPattern(hostname);
}

type Place = Pick<WrittenGateway, "document" | "path">;

function writtenGateway(
  { port, protocol }: ReadListener,
  name: string,
  place: Place,
  sharing: readonly ReadListener[],
  clientCa: string | undefined,
): WrittenGateway {
  if (protocol !== "HTTPS") return { name, port, protocol: "HTTP", ...place };
  // Each listener on the port presents its own certificate for its host name.
  const certificates = sharing.flatMap(({ tls = [], hostname }) =>
    tls.map((certificate) => ({ ...certificate, ...(hostname === undefined ? {} : { hosts: [hostname] }) })),
  );
  const parts = sharing.flatMap(({ hostname }) => (hostname === undefined ? [] : [canonicalPattern(hostname)]));
  const isApart = sharing.length > 1;
  const clientAuth = clientCa === undefined ? {} : { clientAuth: { ca: clientCa, mode: "require" as const } };
  return {
    name,
    port,
    protocol: "HTTPS",
    tls: { certificates, ...(isApart ? { parts } : {}), ...clientAuth },
    ...place,
  };
}

function isTcp({ protocol }: ReadListener): boolean {
  return protocol === "TCP" || protocol === "TLS";
}

function isTerminating({ protocol, isPassthrough }: ReadListener): boolean {
  return protocol === "HTTPS" || (protocol === "TLS" && !isPassthrough);
}

function tcpPartName(gateway: string, { label }: HeldListener): string {
  return `${gateway}#${label}`;
}

/** A listener that cannot be served keeps its host name, so that no other listener of the port serves it. */
function writtenTcpGateway(
  { port, protocol }: ReadListener,
  name: string,
  place: Place,
  sharing: readonly HeldListener[],
  validation: ClientValidation | undefined,
): WrittenGateway {
  const tcp = sharing.map((one): WrittenTcpPart => {
    const part = { name: tcpPartName(name, one), hostname: sectionHostname(one) };
    const closed = { ...part, tls: undefined, closed: `listener ${one.label} is not valid` };
    if (!one.accepted.isTrue) return closed;
    if (!isTerminating(one)) return { ...part, tls: undefined };
    if (one.tls === undefined || validation?.accepted.isTrue === false) return closed;
    const clientAuth =
      validation?.ca === undefined ? {} : { clientAuth: { ca: validation.ca, mode: "require" as const } };
    return { ...part, tls: { certificates: one.tls, ...clientAuth } };
  });
  return { name, port, protocol: protocol === "TLS" ? "TLS" : "TCP", tcp, ...place };
}

/** In a cluster, a Gateway that sets another field is rejected as a whole, unless the value has no effect. */
const GATEWAY_FIELDS = new Set([
  "gatewayClassName",
  "listeners",
  "allowedListeners",
  "addresses",
  "infrastructure",
  "tls",
]);

function refusedField(spec: Fields): Verdict | undefined {
  const no = (reason: string, message: string): Verdict => ({ isTrue: false, reason, message });
  const unsupported = (field: string): Verdict => no("UnsupportedValue", `spec.${field} is not supported`);
  const address = unsupportedAddress(spec);
  if (address) return address;
  // Parameters determine how the data plane is deployed, but not what it serves.
  const { labels: _, annotations: __, parametersRef: ___, ...otherInfrastructure } = fieldsOf(spec.infrastructure);
  const [infrastructure] = Object.keys(otherInfrastructure);
  if (infrastructure !== undefined) return unsupported(`infrastructure.${infrastructure}`);
  const { frontend: _frontend, backend, ...otherTls } = fieldsOf(spec.tls);
  const { clientCertificateRef: _reference, ...otherBackend } = fieldsOf(backend);
  const [tls] = [...Object.keys(otherTls), ...Object.keys(otherBackend).map((field) => `backend.${field}`)];
  if (tls !== undefined) return unsupported(`tls.${tls}`);
  const { namespaces, ...otherAllowed } = fieldsOf(spec.allowedListeners);
  const { from: _from, selector: _selector, ...otherNamespaces } = fieldsOf(namespaces);
  const [allowed] = [
    ...Object.keys(otherAllowed),
    ...Object.keys(otherNamespaces).map((field) => `namespaces.${field}`),
  ];
  if (allowed !== undefined) return unsupported(`allowedListeners.${allowed}`);
  const { defaultScope = "None" } = spec;
  if (defaultScope !== "None") return unsupported("defaultScope");
  const [other] = Object.keys(spec).filter((field) => !GATEWAY_FIELDS.has(field) && field !== "defaultScope");
  return other === undefined ? undefined : unsupported(other);
}

/**
 * Reads `spec.tls.backend`. Without a usable certificate, requests to Services with a BackendTLSPolicy are rejected,
 * because a backend may treat a client without a certificate differently.
 */
function readClientCertificate(
  spec: Fields,
  gateway: string,
  { namespace, cluster, problems }: ListenerContext,
): { readonly certificate: ClientCertificate; readonly resolvedRefs: Verdict } | undefined {
  const reference = fieldsOf(fieldsOf(spec.tls).backend).clientCertificateRef;
  if (!cluster || !isObject(reference)) return undefined;
  const owner = `Gateway ${namespace}/${gateway}`;
  const found = readCertificate(reference, cluster, { group: GATEWAY_API_GROUP, kind: "Gateway", namespace });
  if (!("reason" in found)) return { certificate: { owner, cert: found.cert, key: found.key }, resolvedRefs: RESOLVED };
  const message = `spec.tls.backend.clientCertificateRef: ${found.message}`;
  problems.add(["spec", "tls", "backend", "clientCertificateRef"], found.message);
  const reason = found.reason === "InvalidCertificateRef" ? "InvalidClientCertificateRef" : found.reason;
  return { certificate: { owner, closed: `${owner}: ${message}` }, resolvedRefs: { isTrue: false, reason, message } };
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

function acceptance(
  listeners: readonly ListenerOutcome[],
  isEnough: (listener: ListenerOutcome) => boolean,
  message: string,
): Verdict {
  const bad = listeners.filter(({ accepted, resolvedRefs }) => !accepted.isTrue || !resolvedRefs.isTrue);
  if (bad.length === 0 && listeners.length > 0) return { isTrue: true, reason: "Accepted", message };
  return {
    isTrue: listeners.some(isEnough),
    reason: "ListenersNotValid",
    message: `Listeners that are not valid: ${bad.map(({ name }) => name).join(", ") || "there are none"}`,
  };
}

/**
 * Listeners on a port must use one protocol and different host names. All conflicting listeners of one document are
 * rejected; a listener that conflicts with a document of higher precedence is rejected alone.
 */
function conflictsOf(holders: readonly ListenerHolder[], isCluster: boolean): Map<ReadListener, Verdict> {
  const conflicts = new Map<ReadListener, Verdict>();
  const settled: HeldListener[] = [];
  const add = (one: HeldListener, others: readonly HeldListener[]): void => {
    const conflict = conflictOf(one, others);
    if (conflict) conflicts.set(one, conflict);
  };
  for (const { read } of holders) {
    const valid = read.filter(({ accepted }) => accepted.isTrue);
    for (const one of valid) add(one, settled);
    const rest = valid.filter((one) => !conflicts.has(one));
    // A listener that cannot be served keeps its host name, so that no listener of lower precedence serves it.
    const kept = read.filter((one) => !conflicts.has(one) && one.accepted.reason !== "UnsupportedProtocol");
    if (isCluster || read.some(isTcp)) for (const one of rest) add(one, rest);
    settled.push(...kept);
  }
  return conflicts;
}

function conflictOf(one: HeldListener, all: readonly HeldListener[]): Verdict | undefined {
  const others = all.filter((other) => other !== one && other.port === one.port);
  const protocol = others.find((other) => other.protocol !== one.protocol);
  const hostname = others.find(
    (other) => canonicalPattern(other.hostname ?? "") === canonicalPattern(one.hostname ?? ""),
  );
  const about = (other: HeldListener, what: string): string => {
    // The owner of a ListenerSet may not be allowed to see the listeners of other documents.
    const shown = other.problems === one.problems ? `listener ${other.sectionName}` : "another listener of the Gateway";
    return `port ${one.port} is also that of ${shown}, which has ${what}`;
  };
  if (protocol) return { isTrue: true, reason: "ProtocolConflict", message: about(protocol, "another protocol") };
  if (hostname) return { isTrue: true, reason: "HostnameConflict", message: about(hostname, "the same hostname") };
  return undefined;
}
