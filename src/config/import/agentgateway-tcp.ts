/**
 * Converts agentgateway listeners with the protocol TCP or TLS, and their `tcpRoutes`.
 */
import { defined } from "../../json/json.ts";
import type { PortTls } from "./agentgateway-tls.ts";
import { asList, asObject, type Conversion, isObject, type Values } from "./conversion.ts";

export function isTcpListener({ protocol }: Values): boolean {
  return /^(?:tcp|tls)$/i.test(String(protocol));
}

/** Returns undefined if the listeners of the port cannot share a gateway here. */
export function tcpListener(
  own: Values,
  entries: readonly Values[],
  { tls, conflict }: PortTls,
  at: string,
  conversion: Conversion,
): Values | undefined {
  if (conflict !== undefined) {
    conversion.leftOut.push(`${at}: ${conflict}; a port has one setting here`);
    return undefined;
  }
  const protocols = new Set(entries.map(({ protocol }) => String(protocol).toUpperCase()));
  const terminating = entries.filter((entry) => entry.tls !== undefined).length;
  if (protocols.size > 1 || (terminating > 0 && terminating < entries.length)) {
    conversion.leftOut.push(`${at}: its listeners forward connections in different ways; a port has one way here`);
    return undefined;
  }
  const { port, address, policies } = own;
  // The loader rejects policies here. If one of them protects, the gateway is removed.
  const rejected = Object.assign({}, policies, ...entries.map((entry) => entry.policies));
  const hasPolicies = Object.keys(rejected).length > 0;
  return defined({ port, address, protocol: [...protocols][0], tls, policies: hasPolicies ? rejected : undefined });
}

/** The host name of a listener is the default host name of its routes. */
export function tcpRouteOf(
  route: Values,
  gateways: unknown,
  listenerHostname: unknown,
  at: string,
  conversion: Conversion,
): Values[] {
  const { name, hostnames, backends, policies, ruleName: _ruleName, ...others } = route;
  const list = asList(backends).map(asObject);
  const hasPolicies = [route, ...list].some((one) => Object.keys(asObject(one.policies)).length > 0);
  if (hasPolicies || Object.keys(others).some((field) => field !== "gateways")) {
    const field = hasPolicies ? "policies" : Object.keys(others).find((one) => one !== "gateways");
    conversion.leftOut.push(`${at} (${String(name)}): ${field} has no counterpart, so the route was not imported`);
    return [];
  }
  const isNamed = typeof listenerHostname === "string" && listenerHostname !== "*";
  return [
    defined({
      name,
      gateways,
      hostnames: hostnames ?? (isNamed ? [listenerHostname] : undefined),
      backends: list.map(({ policies: _policies, ...backend }) => backend),
    }),
  ];
}

/** A listener for CONNECT requests, which agentgateway passes to the listener of the requested port. */
export function isConnectBind({ tunnelProtocol, mode = "standard" }: Values, listeners: unknown): boolean {
  return tunnelProtocol === "connect" && mode === "standard" && asList(listeners).length === 0;
}

/**
 * Adds routes for CONNECT requests. agentgateway reads the server name inside of the tunnel, and this gateway reads the
 * host of the CONNECT request.
 */
export function addTunnelRoutes(
  listeners: Values,
  connectionRoutes: readonly Values[],
  routes: Values[],
  conversion: Conversion,
): void {
  const proxies = Object.entries(listeners).filter(([, one]) => asObject(one).forwardProxy === true);
  if (proxies.length === 0) return;
  const gateways = proxies.map(([name]) => name);
  const before = routes.length;
  for (const { name, hostnames, backends, gateways: served } of connectionRoutes) {
    const isDynamic = asList(backends).every((one) => isObject(asObject(one).dynamic));
    const ports = asList(served).map((one) => Number(asObject(listeners[String(one)]).port));
    if (!isDynamic || asList(backends).length === 0) continue;
    routes.push(
      defined({
        name: `${String(name ?? "tunnel")}-connect`,
        gateways,
        hostnames,
        matches: [{ method: "CONNECT" }],
        backends: [{ dynamic: { ports } }],
      }),
    );
  }
  if (routes.length === before) {
    for (const [name, listener] of proxies) {
      delete listeners[name];
      conversion.leftOut.push(
        `the CONNECT listener on port ${String(asObject(listener).port)}: no route is \`dynamic\``,
      );
    }
    return;
  }
  conversion.differs.push(
    "tunnelProtocol: the host of a CONNECT request selects the route here, the server name inside of the tunnel there",
  );
}
