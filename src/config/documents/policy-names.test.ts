import assert from "node:assert/strict";
import { test } from "node:test";
import { policies } from "../../policies/index.ts";
import { configSchema } from "../schema/schema.ts";
import { createCluster, type KubernetesObject } from "./cluster.ts";
import { partsOf } from "./policy-spec.ts";
import { clusterDocument } from "./snapshot.ts";
import { translateResources } from "./translate.ts";

const GATEWAY_API = "gateway.networking.k8s.io/v1";
const PATHS = partsOf(policies).map(({ field }) => field);
const VALID = new Set(["targetRefs", "traffic", "backend", "backend.mcp", ...PATHS.map((field) => field.join("."))]);

/** Names that other gateways and people use for protections. */
const OTHER_NAMES = [
  ...["apiKeys", "jwt", "rbac", "acl", "ipAllowList", "allow", "deny", "security", "csrf", "guardrails", "promptGuard"],
  ...["auth", "authn", "authz", "oidc", "oauth2", "extAuth", "tokenAuth", "authorisation", "waf", "mtls"],
];

/** One letter dropped, doubled, swapped with the next, or in the other case, at each place. */
function misspellings(name: string): string[] {
  return [...name].flatMap((letter, i) => {
    const [before, after] = [name.slice(0, i), name.slice(i + 1)];
    const other = letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase();
    return [
      before + after,
      before + letter + letter + after,
      before + after.slice(0, 1) + letter + after.slice(1),
      before + other + after,
    ];
  });
}

/** Takes every fifth misspelling, so that each name and each kind of mistake occurs. */
function wrongFields(): string[][] {
  const standalone = policies.map(({ kind }) => ["traffic", kind]);
  const others = OTHER_NAMES.flatMap((name) => [["traffic", name], [name]]);
  const generated = PATHS.flatMap((field) =>
    misspellings(field.at(-1) as string).map((name) => [...field.slice(0, -1), name]),
  );
  const all = [...standalone, ...others, ...generated.filter((_, i) => i % 5 === 0)];
  const wrong = all.filter((field) => field.at(-1) !== "" && !VALID.has(field.join(".")));
  return [...new Map(wrong.map((field) => [field.join("."), field])).values()];
}

function closedRoutes(field: readonly string[]): string[] {
  const spec = field.reduceRight<unknown>((inner, name) => ({ [name]: inner }), { keys: [{ key: "some-key" }] });
  const objects: KubernetesObject[] = [
    {
      apiVersion: GATEWAY_API,
      kind: "Gateway",
      metadata: { name: "edge", namespace: "shop" },
      spec: { gatewayClassName: "gateway", listeners: [{ name: "http", port: 80, protocol: "HTTP" }] },
    },
    {
      apiVersion: GATEWAY_API,
      kind: "HTTPRoute",
      metadata: { name: "web", namespace: "shop" },
      spec: { parentRefs: [{ name: "edge" }], rules: [{ backendRefs: [] }] },
    },
    {
      apiVersion: "policy.gateway.internal/v1alpha1",
      kind: "GatewayPolicy",
      metadata: { name: "keys", namespace: "shop" },
      spec: {
        ...(spec as object),
        targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: "web" }],
      },
    },
  ];
  const { closures } = translateResources({
    documents: objects.map(clusterDocument),
    standalone: { gateways: [], routes: [], services: {} },
    policies,
    routeSchema: configSchema.shape.routes.unwrap().element,
    cluster: createCluster(objects),
    nowMs: 0,
  });
  return closures.map(({ target }) => target.name);
}

test("no misspelled or standalone policy name in a GatewayPolicy leaves a route open", () => {
  const fields = wrongFields();
  assert.ok(fields.length >= 200, `only ${fields.length} names`);
  const open = fields.filter((field) => closedRoutes(field).length === 0);
  assert.deepEqual(
    open.map((field) => field.join(".")),
    [],
  );
});
