/**
 * A Gateway document (gateway.networking.k8s.io) → gateways of the standalone configuration: one for each port, since
 * listeners that share a port differ only in their host names. What cannot be served (other protocols, ports that are
 * taken, HTTPS without key files) is reported and left out; the other listeners are served.
 */
import type { Path } from "../text/value-path.ts";
import { DEFAULT_NAMESPACE, POLICY_API_GROUP, type ResourceDocument, type WrittenGateway } from "./documents.ts";
import { isObject } from "./parts.ts";
import { identityOf, listOf, type ProblemList, textOf } from "./problem-list.ts";
import { type GatewayListener, type GatewayTarget, gatewayReference } from "./targets.ts";

/** A Secret is not read: the files of an HTTPS listener are named by these keys of `tls.options`. */
const CERT_OPTION = `${POLICY_API_GROUP}/cert`;
const KEY_OPTION = `${POLICY_API_GROUP}/key`;

export interface TranslatedGateway {
  readonly target: GatewayTarget;
  readonly gateways: readonly WrittenGateway[];
}

/** `takenPorts` gets the ports that this document takes. */
export function translateGateway(
  document: ResourceDocument,
  takenPorts: Set<number>,
  problems: ProblemList,
): TranslatedGateway {
  const { namespace, name } = identityOf(document);
  const spec = isObject(document.value) && isObject(document.value.spec) ? document.value.spec : {};
  const written = listOf(spec.listeners);
  if (written.length === 0) problems.add(["spec", "listeners"], "a list with at least one listener is needed");
  const prefix = namespace === DEFAULT_NAMESPACE ? name : `${namespace}/${name}`;
  const ports = new Set(written.map((listener) => (isObject(listener) ? listener.port : undefined)));
  const gateways = new Map<number, WrittenGateway>();
  const listeners: GatewayListener[] = [];

  for (const [i, listener] of written.entries()) {
    const path = ["spec", "listeners", i];
    const read = readListener(listener, path, problems);
    if (!read) continue;
    if (!gateways.has(read.port)) {
      if (takenPorts.has(read.port)) {
        problems.add([...path, "port"], `port ${read.port} is already used by another gateway`);
        continue;
      }
      if (read.port !== 0) takenPorts.add(read.port);
      const own = ports.size === 1 ? prefix : `${prefix}/${read.sectionName}`;
      gateways.set(read.port, {
        name: own,
        port: read.port,
        protocol: read.protocol,
        ...(read.tls ? { tls: read.tls } : {}),
        document,
        path,
      });
    }
    listeners.push({
      sectionName: read.sectionName,
      gateway: (gateways.get(read.port) as WrittenGateway).name,
      port: read.port,
      hostname: read.hostname,
      admits: (routeNamespace) => read.from === "All" || routeNamespace === namespace,
    });
  }
  return { target: { reference: gatewayReference(namespace, name), listeners }, gateways: [...gateways.values()] };
}

interface Listener {
  readonly sectionName: string;
  readonly port: number;
  readonly protocol: "HTTP" | "HTTPS";
  readonly tls: { readonly cert: string; readonly key: string } | undefined;
  readonly hostname: string | undefined;
  readonly from: string;
}

function readListener(written: unknown, path: Path, problems: ProblemList): Listener | undefined {
  if (!isObject(written)) {
    problems.add(path, "expected an object");
    return undefined;
  }
  const { name, port, protocol, hostname, tls, allowedRoutes } = written;
  const sectionName = textOf(name);
  if (sectionName === undefined) {
    problems.add([...path, "name"], "required field is missing");
    return undefined;
  }
  if (typeof port !== "number" || !Number.isInteger(port) || port < 0 || port > 65_535) {
    problems.add([...path, "port"], "expected a port number");
    return undefined;
  }
  if (protocol !== "HTTP" && protocol !== "HTTPS") {
    problems.add([...path, "protocol"], `${String(protocol)} is not supported: use HTTP or HTTPS`);
    return undefined;
  }
  const files = protocol === "HTTPS" ? keyFiles(tls) : undefined;
  if (protocol === "HTTPS" && files === undefined) {
    problems.add(
      [...path, "tls"],
      `certificateRefs are not read: name the files in tls.options as ${CERT_OPTION} and ${KEY_OPTION}`,
    );
    return undefined;
  }
  const namespaces = isObject(allowedRoutes) && isObject(allowedRoutes.namespaces) ? allowedRoutes.namespaces : {};
  const from = textOf(namespaces.from) ?? "Same";
  if (from === "Selector") {
    problems.add(
      [...path, "allowedRoutes", "namespaces", "from"],
      "Selector is not supported: only routes of the same namespace are served",
    );
  }
  return { sectionName, port, protocol, tls: files, hostname: textOf(hostname), from };
}

function keyFiles(tls: unknown): { cert: string; key: string } | undefined {
  const options = isObject(tls) && isObject(tls.options) ? tls.options : {};
  const cert = textOf(options[CERT_OPTION]);
  const key = textOf(options[KEY_OPTION]);
  return cert === undefined || key === undefined ? undefined : { cert, key };
}
