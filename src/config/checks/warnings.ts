/**
 * Describes the context of a policy for the checks: the backends that its requests can reach, and the policies around
 * it.
 */

import { ConfigError } from "../../core/config-error.ts";
import type { Scope } from "../../core/policy.ts";
import type {
  NormalBackend,
  NormalConfig,
  NormalGateway,
  NormalRoute,
  Place,
  PlacedPolicy,
} from "../load/normal-config.ts";
import { type Path, pathText } from "../text/value-path.ts";

export interface Site {
  readonly scope: Scope;
  readonly routes: readonly NormalRoute[];
  /** Contains the backends of these routes, or the backend of a backend policy. */
  readonly backends: readonly NormalBackend[];
  /** Contains the policy kinds of this scope and the scopes around it. */
  readonly before: ReadonlySet<string>;
  /** Contains the kinds of `before`, and for a gateway also those of its routes. */
  readonly all: ReadonlySet<string>;
  readonly config: NormalConfig;
}

export interface SitedPolicy {
  readonly policy: PlacedPolicy;
  readonly site: Site;
}

export function sitedPolicies(config: NormalConfig): SitedPolicy[] {
  return [
    ...config.gateways.flatMap((gateway) => {
      const site = gatewaySite(gateway, config);
      return gateway.policies.map((policy) => ({ policy, site }));
    }),
    ...config.routes.flatMap((route) => {
      const site = routeSite(route, config);
      return [
        ...route.policies.map((policy) => ({ policy, site })),
        ...route.backends.flatMap((backend) => {
          const kinds = new Set([...site.all, ...kindsOf(backend.policies)]);
          const own: Site = { ...site, scope: "backend", backends: [backend], before: kinds, all: kinds };
          return [
            ...backend.policies.map((policy) => ({ policy, site: own })),
            ...(backend.inner ?? []).flatMap(({ policies }) => {
              const inside = new Set([...kinds, ...kindsOf(policies)]);
              return policies.map((policy) => ({ policy, site: { ...own, before: inside, all: inside } }));
            }),
          ];
        }),
      ];
    }),
  ];
}

function gatewaySite(gateway: NormalGateway, config: NormalConfig): Site {
  const routes = config.routes.filter((route) => route.gateways.includes(gateway.name));
  return {
    scope: "gateway",
    routes,
    backends: routes.flatMap((route) => route.backends),
    before: new Set(kindsOf(gateway.policies)),
    all: new Set([...kindsOf(gateway.policies), ...routes.flatMap((route) => kindsOf(route.policies))]),
    config,
  };
}

function routeSite(route: NormalRoute, config: NormalConfig): Site {
  const gateways = config.gateways.filter(({ name }) => route.gateways.includes(name));
  const kinds = new Set([...gateways, route].flatMap(({ policies }) => kindsOf(policies)));
  return { scope: "route", routes: [route], backends: route.backends, before: kinds, all: kinds, config };
}

function kindsOf(policies: readonly PlacedPolicy[]): string[] {
  return policies.map(({ kind }) => kind);
}

export type Warn = (warning: ConfigError) => void;

export function warningAt({ document, path }: Place, below: Path, message: string): ConfigError {
  const whole = [...path, ...below];
  return new ConfigError(document.position(whole), pathText(whole), message);
}
