/**
 * What listeners let in: MCP and LLM routes that other machines reach without authentication, and the ports that the
 * sections `mcp` and `llm` take beside `gateways`.
 */
import { boundAddress } from "../../lib/http/bound-address.ts";
import { policies } from "../../policies/index.ts";
import type { NormalConfig, NormalGateway, NormalRoute, PlacedPolicy } from "../load/normal-config.ts";
import { type Warn, warningAt } from "./warning.ts";

/** Backends that act or spend money for whoever asks; a plain proxy is often meant for everybody. */
const GUARDED_BACKENDS: ReadonlySet<string> = new Set(["mcp", "ai"]);
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|::1)$/;

export function checkOpenListeners(config: NormalConfig, warn: Warn): void {
  for (const gateway of config.gateways) {
    if (gateway.closed !== undefined || isLoopback(gateway) || gateway.policies.some(asksWho)) continue;
    const open = config.routes.filter((route) => route.gateways.includes(gateway.name) && isOpen(route));
    if (open.length === 0) continue;
    const names = open.map(({ name }) => JSON.stringify(name)).join(", ");
    const what = `${open.length === 1 ? "route" : "routes"} ${names}`;
    warn(
      warningAt(
        gateway.place,
        [gateway.address === undefined ? "port" : "address"],
        `other machines can reach ${boundAddress(gateway.address, gateway.port)}, and ${what} ${open.length === 1 ? "asks" : "ask"} for no authentication: set \`address: 127.0.0.1\` or add an authentication policy`,
      ),
    );
  }
}

/** Notes: beside `gateways`, a section that does not name a gateway opens a port of its own. */
export function noteSectionPorts(config: NormalConfig, note: Warn): void {
  const isSection = ({ place }: NormalGateway): boolean => place.path[0] !== "gateways" && place.path.length === 1;
  if (config.gateways.every(isSection)) return;
  for (const gateway of config.gateways.filter(isSection)) {
    const at = boundAddress(gateway.address, gateway.port);
    note(
      warningAt(
        gateway.place,
        ["port"],
        `listens on ${at}, a port of its own; \`gateway: <name>\` instead of \`port\` puts it on one of \`gateways\``,
      ),
    );
  }
}

function isLoopback({ address }: NormalGateway): boolean {
  return address !== undefined && LOOPBACK.test(address);
}

function isOpen(route: NormalRoute): boolean {
  return (
    route.closed === undefined &&
    route.backends.some(({ key, policies: own }) => GUARDED_BACKENDS.has(key) && !own.some(asksWho)) &&
    !route.policies.some(asksWho)
  );
}

/** Asks for a credential, or has rules about who may come in. */
function asksWho({ kind, config }: PlacedPolicy): boolean {
  if (kind === "authorization") return true;
  return policies.find((policy) => policy.kind === kind)?.requiresCredential?.(config) === true;
}
