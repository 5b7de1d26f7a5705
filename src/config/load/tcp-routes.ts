/**
 * Adds `tcpRoutes` to the gateways that forward connections. A route that could never be selected is an error.
 */

import { canonicalPattern } from "../../http/host.ts";
import type { WrittenTcpRoute } from "../schema/schema.ts";
import type { Path } from "../text/value-path.ts";
import type { NormalGateway, NormalTcpRoute } from "./normal-config.ts";
import { gatewayFault, noGateway, servedBy } from "./route-gateways.ts";

type Report = (path: Path, message: string) => void;

export function addTcpRoutes(
  written: readonly WrittenTcpRoute[],
  gateways: readonly NormalGateway[],
  problem: Report,
): void {
  const forwarding = gateways.filter(({ tcp }) => tcp !== undefined);
  const names = new Set<string>();
  for (const [index, route] of written.entries()) {
    const path = ["tcpRoutes", index];
    const name = route.name ?? `tcpRoute${index}`;
    if (names.has(name)) problem([...path, "name"], `another entry is already named ${JSON.stringify(name)}`);
    names.add(name);
    const served = servedBy(route, forwarding);
    if (served.length === 0)
      problem([...path, ...(route.gateways === undefined ? [] : ["gateways"])], noGateway(route, forwarding));
    for (const gateway of served) {
      const fault = gatewayFault(gateway, gateways, true);
      const found = forwarding.find((one) => one.name === gateway);
      if (fault !== undefined) problem([...path, "gateways"], fault);
      else if (found) addTo(found, normalTcpRoute(name, route), path, problem);
    }
  }
}

function addTo(gateway: NormalGateway, route: NormalTcpRoute, path: Path, problem: Report): void {
  const [part] = gateway.tcp ?? [];
  if (part === undefined) return;
  const { name, protocol } = gateway;
  if (route.hostnames.length > 0 && protocol === "TCP")
    problem([...path, "hostnames"], `the gateway ${JSON.stringify(name)} has \`protocol: TCP\`, without server names`);
  if (route.backends.some(({ dynamic }) => dynamic !== undefined) && (protocol === "TCP" || part.tls !== undefined))
    problem(
      [...path, "backends"],
      `\`dynamic\` needs a gateway with \`protocol: TLS\` and without \`tls\`, unlike ${JSON.stringify(name)}`,
    );
  const other = part.routes.find((one) =>
    route.hostnames.length === 0
      ? one.hostnames.length === 0
      : route.hostnames.some((hostname) => one.hostnames.includes(hostname)),
  );
  if (other !== undefined)
    problem(
      [...path, ...(route.hostnames.length === 0 ? [] : ["hostnames"])],
      `the route ${JSON.stringify(other.name)} already serves ${route.hostnames.length === 0 ? "all other connections" : "one of these names"} of the gateway ${JSON.stringify(name)}`,
    );
  part.routes.push(route);
}

function normalTcpRoute(name: string, { hostnames = [], backends }: WrittenTcpRoute): NormalTcpRoute {
  return {
    name,
    hostnames: hostnames.map(canonicalPattern),
    backends: backends.map(({ host, dynamic, weight = 1, proxyProtocol }) => ({
      name: host ?? "dynamic",
      address: host,
      dynamic,
      weight,
      isClosed: false,
      sendsProxyHeader: proxyProtocol === "v2",
    })),
  };
}
