/**
 * State that several pods of a Gateway do not share is reported on the policies and routes that need it, with the field
 * to set.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubernetesObject } from "../config/documents/cluster.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { desiredStatuses } from "./status.ts";

const GATEWAY_API = "gateway.networking.k8s.io/v1";
const OWN_API = "policy.gateway.internal/v1alpha1";
const object = (apiVersion: string, kind: string, name: string, spec: object): KubernetesObject => ({
  apiVersion,
  kind,
  metadata: { name, namespace: "infra", generation: 1 },
  spec,
});

interface Case {
  readonly policy?: object;
  readonly backend?: object;
  readonly parameters?: object;
  /** Another controller may scale the Deployment. */
  readonly deployedReplicas?: number;
  readonly defaultReplicas?: number | undefined;
}

/** Returns the conditions Accepted of the policy and PartiallyInvalid of the route, as `reason: message`. */
function reported(one: Case): { readonly policy: string; readonly route: string } {
  const { policy = {}, backend = { ai: { provider: { demo: {} } } }, parameters = {}, deployedReplicas } = one;
  const reference = { group: "policy.gateway.internal", kind: "GatewayParameters", name: "large" };
  const objects = [
    object(GATEWAY_API, "GatewayClass", "gateway", { controllerName: "policy.gateway.internal/gateway" }),
    object(GATEWAY_API, "Gateway", "edge", {
      gatewayClassName: "gateway",
      infrastructure: { parametersRef: reference },
      listeners: [{ name: "http", port: 80, protocol: "HTTP" }],
    }),
    object(OWN_API, "GatewayParameters", "large", parameters),
    object(OWN_API, "Backend", "one", backend),
    object(GATEWAY_API, "HTTPRoute", "web", {
      parentRefs: [{ name: "edge" }],
      rules: [{ backendRefs: [{ group: "policy.gateway.internal", kind: "Backend", name: "one" }] }],
    }),
    object(OWN_API, "GatewayPolicy", "own", {
      targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: "web" }],
      ...policy,
    }),
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "shared", namespace: "infra" },
      data: { session: Buffer.from("s".repeat(32)).toString("base64") },
    },
    ...(deployedReplicas === undefined
      ? []
      : [object("apps/v1", "Deployment", "edge-gateway", { replicas: deployedReplicas })]),
  ];
  const state = { programmed: { isTrue: true, reason: "Programmed", message: "" }, addresses: [], refused: new Map() };
  const view = createClusterView(objects, 0, "defaultReplicas" in one ? one.defaultReplicas : 1);
  const statuses = desiredStatuses(view, () => state, 0);
  const conditionOf = (kind: string, list: "ancestors" | "parents", type: string): string => {
    const { status } = statuses.find((found) => found.object.kind === kind) ?? {};
    const [entry] = listOf(status?.[list]).map(fieldsOf);
    const found = listOf(entry?.conditions)
      .map(fieldsOf)
      .find((condition) => condition.type === type);
    return found === undefined ? "" : `${found.status} ${found.reason}: ${found.message}`;
  };
  return {
    policy: conditionOf("GatewayPolicy", "ancestors", "Accepted"),
    route: conditionOf("HTTPRoute", "parents", "PartiallyInvalid"),
  };
}

const BUDGETS = { traffic: { budgets: { limits: [{ name: "exact", tokens: 2000, per: "day" }] } } };
const TOOLS = { mcp: { targets: [{ name: "a", mcp: { url: "https://tools.example.com/mcp" } }] } };
const OWN_BUDGETS =
  "True PartiallyInvalid: spec.traffic.budgets: each of 2 pods has its own budgets; set spec.config.store in the GatewayParameters";
const STORE = { store: { redis: "redis://redis.infra.svc:6379" } };
const KEY = { sessionKey: { secretRef: { name: "shared", key: "session" } } };

for (const [name, one, expected] of [
  ["a budget with one pod", { policy: BUDGETS }, { policy: "True Valid: Policy accepted", route: "" }],
  ["a budget with two pods", { policy: BUDGETS, parameters: { replicas: 2 } }, { policy: OWN_BUDGETS, route: "" }],
  ["a budget with two pods by default", { policy: BUDGETS, defaultReplicas: 2 }, { policy: OWN_BUDGETS, route: "" }],
  ["a budget with a scaled Deployment", { policy: BUDGETS, deployedReplicas: 2 }, { policy: OWN_BUDGETS, route: "" }],
  [
    "a budget with an autoscaler",
    { policy: BUDGETS, parameters: { autoscaling: { maxReplicas: 2 } } },
    { policy: OWN_BUDGETS, route: "" },
  ],
  [
    "a budget with a session key",
    { policy: BUDGETS, parameters: { replicas: 2, config: KEY } },
    { policy: OWN_BUDGETS, route: "" },
  ],
  [
    "a budget with a store",
    { policy: BUDGETS, parameters: { replicas: 2, config: STORE } },
    { policy: "True Valid: Policy accepted", route: "" },
  ],
  [
    "a budget in a data plane that something else deploys",
    { policy: BUDGETS, parameters: { replicas: 2 }, defaultReplicas: undefined },
    { policy: "True Valid: Policy accepted", route: "" },
  ],
  [
    "a limit of each pod",
    { policy: { traffic: { rateLimit: { local: [{ requests: 1, unit: "Minutes" }] } } }, parameters: { replicas: 2 } },
    { policy: "True Valid: Policy accepted", route: "" },
  ],
  [
    "stored API keys",
    { policy: { traffic: { apiKeyAuthentication: { stored: true } } }, parameters: { replicas: 2 } },
    {
      policy: OWN_BUDGETS.replace("budgets", "apiKeyAuthentication").replace("own budgets", "own stored API keys"),
      route: "",
    },
  ],
  [
    "MCP sessions",
    { backend: TOOLS, policy: BUDGETS, parameters: { replicas: 2 } },
    {
      policy: OWN_BUDGETS,
      route:
        "True UnsupportedValue: Backend infra/one spec.mcp: each of 2 pods has its own MCP sessions; set spec.config.store or spec.config.sessionKey in the GatewayParameters",
    },
  ],
  [
    "MCP sessions with a session key",
    { backend: TOOLS, policy: BUDGETS, parameters: { replicas: 2, config: KEY } },
    { policy: OWN_BUDGETS, route: "" },
  ],
  [
    "MCP without sessions",
    { backend: { mcp: { ...TOOLS.mcp, statefulMode: "stateless" } }, policy: BUDGETS, parameters: { replicas: 2 } },
    { policy: OWN_BUDGETS, route: "" },
  ],
] satisfies [string, Case, object][])
  test(`the status shows ${name}`, () => assert.deepEqual(reported(one), expected));
