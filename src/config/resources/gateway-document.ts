/**
 * A Gateway document (gateway.networking.k8s.io) → gateways of the standalone configuration: one for each port, since
 * listeners that share a port differ only in their host names. What cannot be served (other protocols, ports that are
 * taken, HTTPS without a certificate, listeners that contradict each other) is reported and left out; the other
 * listeners are served.
 */
import type { Cluster } from "../cluster/cluster.ts";
import type { Path } from "../text/value-path.ts";
import { fieldsOf, listOf } from "../text/value-shapes.ts";
import {
  DEFAULT_NAMESPACE,
  type GatewayOutcome,
  type ListenerOutcome,
  type ResourceDocument,
  type Verdict,
  type WrittenGateway,
} from "./documents.ts";
import { type ReadListener, readListener } from "./listener-document.ts";
import { identityOf, type ProblemList } from "./problem-list.ts";
import { type GatewayListener, type GatewayTarget, gatewayReference } from "./targets.ts";

export interface TranslatedGateway {
  readonly target: GatewayTarget;
  readonly gateways: readonly WrittenGateway[];
  readonly outcome: GatewayOutcome;
}

const NO_CONFLICT: Verdict = { isTrue: false, reason: "NoConflicts", message: "No conflicts" };
const ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "Gateway accepted" };

/** `takenPorts` gets the ports that this document takes; in a cluster each Gateway has an address of its own. */
export function translateGateway(
  document: ResourceDocument,
  takenPorts: Set<number>,
  problems: ProblemList,
  cluster: Cluster | undefined,
): TranslatedGateway {
  const { namespace, name } = identityOf(document);
  const written = listOf(fieldsOf(fieldsOf(document.value).spec).listeners);
  if (written.length === 0) problems.add(["spec", "listeners"], "a list with at least one listener is required");
  const context = { document, namespace, cluster, problems };
  const read = written.flatMap((listener, i) => {
    const path = ["spec", "listeners", i];
    const found = readListener(listener, path, context);
    return found ? [{ ...found, path }] : [];
  });
  const conflicts = cluster ? conflictsOf(read) : new Map<ReadListener, Verdict>();
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
    const isUsable = accepted.isTrue && (one.protocol === "HTTP" || one.tls !== undefined);
    if (isUsable && !gateways.has(one.port)) {
      if (takenPorts.has(one.port)) {
        const message = `port ${one.port} is already used by another gateway`;
        problems.add([...one.path, "port"], message);
        accepted = { isTrue: false, reason: "PortUnavailable", message };
      } else {
        if (one.port !== 0) takenPorts.add(one.port);
        const sharing = read.filter((other) => other.port === one.port && !conflicts.has(other));
        gateways.set(one.port, writtenGateway(one, nameOf(one), document, sharing));
      }
    }
    const outcome: ListenerOutcome = {
      name: one.sectionName,
      supportedKinds: one.supportedKinds,
      accepted,
      resolvedRefs: one.resolvedRefs,
      conflicted,
      attachedRoutes: 0,
    };
    outcomes.push(outcome);
    listeners.push({
      sectionName: one.sectionName,
      gateway: isUsable ? gateways.get(one.port)?.name : undefined,
      port: one.port,
      hostname: one.hostname,
      admits: one.admits,
      outcome,
    });
  }
  return {
    target: { reference: gatewayReference(namespace, name), listeners },
    gateways: [...gateways.values()],
    outcome: { document, accepted: acceptance(outcomes), listeners: outcomes },
  };
}

function shortName(namespace: string, name: string): string {
  return namespace === DEFAULT_NAMESPACE ? name : `${namespace}/${name}`;
}

/** The key under `gateways` of each port. In a cluster the port tells them apart, which stays when listeners are renamed. */
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

function writtenGateway(
  { port, protocol, path }: ReadListener & { readonly path: Path },
  name: string,
  document: ResourceDocument,
  sharing: readonly ReadListener[],
): WrittenGateway {
  if (protocol !== "HTTPS") return { name, port, protocol: "HTTP", document, path };
  // Each listener of the port shows its own to whoever asks for its host name.
  const certificates = sharing.flatMap(({ tls = [], hostname }) =>
    tls.map((certificate) => ({ ...certificate, ...(hostname === undefined ? {} : { hosts: [hostname] }) })),
  );
  const parts = sharing.flatMap(({ hostname }) => (hostname === undefined ? [] : [hostname.toLowerCase()]));
  const isApart = sharing.length > 1;
  return { name, port, protocol: "HTTPS", tls: { certificates, ...(isApart ? { parts } : {}) }, document, path };
}

function acceptance(listeners: readonly ListenerOutcome[]): Verdict {
  const bad = listeners.filter(({ accepted, resolvedRefs }) => !accepted.isTrue || !resolvedRefs.isTrue);
  if (bad.length === 0 && listeners.length > 0) return ACCEPTED;
  const message = `Listeners that are not valid: ${bad.map(({ name }) => name).join(", ") || "there are none"}`;
  // Valid ones are served all the same.
  return { isTrue: listeners.some(({ accepted }) => accepted.isTrue), reason: "ListenersNotValid", message };
}

/** Listeners of one port must speak one protocol and have different host names; none of two that contradict is preferred. */
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
