/**
 * Finds the policies that apply to a listener, route, or backend, in execution order from the listener to the backend.
 */
import type { PolicyOwner } from "./config-text.ts";
import type { Dump, Policies } from "./dump.ts";

export interface PolicyScope {
  readonly title: string;
  readonly policies: Policies;
  readonly owner: PolicyOwner;
}

export function scopesOf({ listeners, routes, backends }: Dump, kind: string, name: string): PolicyScope[] {
  const listener = (gateway: string, route: string | null): PolicyScope => ({
    title: `listener ${gateway}`,
    policies: listeners.find((one) => one.name === gateway)?.policies ?? {},
    owner: { phase: "gateway", listener: gateway, route, backend: 0 },
  });
  const backend = (one: string, i: number, route: string | null): PolicyScope => ({
    title: `backend ${one}`,
    policies: backends.find((entry) => entry.name === one)?.policies ?? {},
    owner: { phase: "backend", listener: "", route, backend: i },
  });
  if (kind === "listener") return [listener(name, null)];
  if (kind === "backend") return [backend(name, 0, null)];
  const route = routes.find((one) => one.name === name);
  if (!route) return [];
  const owner = { phase: "route" as const, listener: route.gateways[0] ?? "", route: name, backend: 0 };
  return [
    ...route.gateways.map((gateway) => listener(gateway, name)),
    { title: `route ${name}`, policies: route.policies, owner },
    ...route.backends.map((one, i) => backend(one.name, i, name)),
  ];
}
