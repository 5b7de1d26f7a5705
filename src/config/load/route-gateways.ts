/**
 * Finds the gateways that serve a route.
 */
import { suggestion } from "../../cel/values/nearest-name.ts";
import type { NormalGateway } from "./normal-config.ts";

const DEFAULT_GATEWAY = "default";

interface ServedRoute {
  readonly gateways?: string | readonly string[] | undefined;
}

/** Returns the gateways that a route names, otherwise `default`, otherwise the only gateway. */
export function servedBy(route: ServedRoute, gateways: readonly NormalGateway[]): readonly string[] {
  if (route.gateways !== undefined) return typeof route.gateways === "string" ? [route.gateways] : route.gateways;
  const only =
    gateways.find(({ name }) => name === DEFAULT_GATEWAY) ?? (gateways.length === 1 ? gateways[0] : undefined);
  return only ? [only.name] : [];
}

/** Explains why a gateway cannot serve a route for HTTP requests, or for connections if `isTcp` is true. */
export function gatewayFault(name: string, gateways: readonly NormalGateway[], isTcp = false): string | undefined {
  const found = gateways.find((gateway) => gateway.name === name);
  if (found === undefined) {
    const names = gateways.map((gateway) => gateway.name);
    return `there is no gateway named ${JSON.stringify(name)}${suggestion(name, names)}`;
  }
  if ((found.tcp !== undefined) === isTcp) return undefined;
  return isTcp
    ? `the gateway ${JSON.stringify(name)} serves HTTP: set its \`protocol\` to TCP or TLS, or write an entry of \`routes\``
    : `the gateway ${JSON.stringify(name)} has \`protocol: ${found.protocol}\`: write an entry of \`tcpRoutes\``;
}

/** Explains why no gateway serves a route. `gateways` contains those that could. */
export function noGateway(route: ServedRoute, gateways: readonly NormalGateway[]): string {
  if (route.gateways !== undefined) return "the list of gateways is empty";
  return gateways.length === 0
    ? "there is no gateway to serve it: add one under `gateways`"
    : `set \`gateways\`: there are several (${gateways.map(({ name }) => name).join(", ")}) and none is named default`;
}
