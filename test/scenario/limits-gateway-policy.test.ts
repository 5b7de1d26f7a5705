/**
 * Spec 2.6: GatewayPolicy documents beside the standalone configuration, their status, and Gateway API documents.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";

async function start(t: TestContext, yaml: (host: string) => string): Promise<TestGateway> {
  const backend = await startBackend();
  const gateway = await startGateway(yaml(backend.host), { clock: shiftedClock() });
  t.after(() => gateway.close().finally(backend.close));
  return gateway;
}

const standalone = (host: string): string => `
gateways: { default: { port: 0 } }
routes:
  - { name: web, matches: [{ path: { pathPrefix: /web } }], backends: [{ host: "${host}" }] }
  - { name: shop, matches: [{ path: { pathPrefix: /shop } }], backends: [{ host: "${host}" }] }
`;

function policy(name: string, kind: string, target: string, traffic: string): string {
  return `---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: ${name}, namespace: default }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: ${kind}, name: ${target} }]
  traffic: ${traffic}
`;
}

async function statuses(url: string, count: number): Promise<number[]> {
  const results: number[] = [];
  for (let i = 0; i < count; i++) results.push((await fetch(url)).status);
  return results;
}

interface DumpedPolicy {
  readonly kind: string;
  readonly apiVersion?: string;
  readonly metadata?: { readonly name: string };
  readonly spec?: unknown;
  readonly status?: {
    readonly ancestors: {
      readonly conditions: {
        readonly type: string;
        readonly status: string;
        readonly reason: string;
        readonly message: string;
      }[];
    }[];
  };
}

async function dumpedPolicies(gateway: TestGateway): Promise<DumpedPolicy[]> {
  const dump = (await (await fetch(`${gateway.adminUrl}/config_dump`)).json()) as { policies: DumpedPolicy[] };
  return dump.policies.filter(({ kind }) => kind === "GatewayPolicy");
}

test("a policy limits the route that it targets, and the dump shows the resource with its status [S2.6-1] [S9-1]", async (t) => {
  const gateway = await start(
    t,
    (host) =>
      standalone(host) +
      policy("limits", "HTTPRoute", "web", "{ rateLimit: { local: [{ requests: 3, unit: Seconds, burst: 3 }] } }"),
  );
  assert.deepEqual(await statuses(`${gateway.url()}/web`, 7), [200, 200, 200, 200, 200, 200, 429]);
  assert.deepEqual(await statuses(`${gateway.url()}/shop`, 7), [200, 200, 200, 200, 200, 200, 200]);
  const [resource] = await dumpedPolicies(gateway);
  assert.equal(resource?.apiVersion, "policy.gateway.internal/v1alpha1");
  assert.equal(resource?.metadata?.name, "limits");
  assert.deepEqual(
    resource?.status?.ancestors[0]?.conditions.map(({ type, status, message }) => [type, status, message]),
    [
      ["Accepted", "True", "Policy accepted"],
      ["Attached", "True", "Attached to all targets"],
    ],
  );
});

test("a target that is named twice is charged once", async (t) => {
  const ref = "{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: web }";
  const gateway = await start(
    t,
    (host) =>
      standalone(host) +
      policy("limits", "HTTPRoute", "web", "{ rateLimit: { local: [{ requests: 3, unit: Hours }] } }").replace(
        /targetRefs: .*/,
        `targetRefs: [${ref}, ${ref}]`,
      ),
  );
  assert.deepEqual(await statuses(`${gateway.url()}/web`, 4), [200, 200, 200, 429]);
  const [resource] = await dumpedPolicies(gateway);
  assert.match(resource?.status?.ancestors[0]?.conditions[0]?.message ?? "", /targetRefs\[1\] repeats HTTPRoute/);
});

test("a policy on a Gateway is one ceiling over its routes [S2.6-1] [S8-8]", async (t) => {
  const gateway = await start(
    t,
    (host) =>
      standalone(host) +
      policy("ceiling", "Gateway", "default", "{ rateLimit: { local: [{ requests: 3, unit: Hours }] } }"),
  );
  assert.deepEqual(await statuses(`${gateway.url()}/web`, 2), [200, 200]);
  assert.deepEqual(await statuses(`${gateway.url()}/shop`, 2), [200, 429]);
});

test("a token limit on a Gateway is one ceiling over its routes, on a route it is that route's [S8-8]", async (t) => {
  const route = (name: string): string =>
    `{ name: ${name}, matches: [{ path: { pathPrefix: /${name} } }], backends: [{ ai: { provider: { demo: {} } } }] }`;
  const routes = `gateways: { default: { port: 0 } }\nroutes: [${route("web")}, ${route("shop")}]\n`;
  const ask = async (gateway: TestGateway, name: string): Promise<number> => {
    const response = await fetch(`${gateway.url()}/${name}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "Hello!" }] }),
    });
    await response.text();
    return response.status;
  };
  const limit = "{ rateLimit: { local: [{ tokens: 1, unit: Hours }] } }";
  const ceiling = await start(t, () => routes + policy("ceiling", "Gateway", "default", limit));
  assert.deepEqual([await ask(ceiling, "web"), await ask(ceiling, "shop")], [200, 429]);
  const own = await start(t, () => routes + policy("own", "HTTPRoute", "web", limit));
  assert.deepEqual([await ask(own, "web"), await ask(own, "web"), await ask(own, "shop")], [200, 429, 200]);
});

test("a bad policy is logged and shown, and stops neither the start nor the others", async (t) => {
  const gateway = await start(
    t,
    (host) =>
      standalone(host) +
      policy("bad", "HTTPRoute", "shop", "{ rateLimit: { local: [{ tokens: 3, unit: Seconds, burst: 1 }] } }") +
      policy("good", "HTTPRoute", "web", "{ rateLimit: { local: [{ requests: 1, unit: Hours }] } }"),
  );
  await gateway.logged("GatewayPolicy default/bad: spec.traffic.rateLimit.local[0].burst");
  assert.deepEqual(await statuses(`${gateway.url()}/web`, 2), [200, 429]);
  assert.deepEqual(await statuses(`${gateway.url()}/shop`, 2), [200, 200]);
  const [bad] = await dumpedPolicies(gateway);
  assert.deepEqual(
    bad?.status?.ancestors[0]?.conditions.map(({ status }) => status),
    ["False", "False"],
  );
});

test("an invalid limit does not lift the valid one beside it", async (t) => {
  const invalid = [
    "{ requests: 5 }",
    "{ requests: 5, unit: Hours, key: user.id }",
    "{ requests: 5, unit: Hours, perClient: true }",
  ];
  const gateway = await start(
    t,
    (host) =>
      standalone(host) +
      policy(
        "mixed",
        "HTTPRoute",
        "web",
        `{ rateLimit: { local: [${invalid[0]}, { requests: 1, unit: Hours }, ${invalid[1]}, ${invalid[2]}] } }`,
      ),
  );
  assert.deepEqual(await statuses(`${gateway.url()}/web`, 3), [200, 429, 429]);
  const [mixed] = await dumpedPolicies(gateway);
  const [accepted, attached] = mixed?.status?.ancestors[0]?.conditions ?? [];
  assert.deepEqual([accepted?.status, accepted?.reason, attached?.status], ["True", "PartiallyInvalid", "True"]);
  for (const i of [0, 2, 3]) assert.match(accepted?.message ?? "", new RegExp(`rateLimit\\.local\\[${i}\\]`));
  assert.doesNotMatch(accepted?.message ?? "", /local\[1\]/);
  await gateway.logged("GatewayPolicy default/mixed: spec.traffic.rateLimit.local[0].unit");
});

test("an authorization that cannot be understood closes its target and nothing else", async (t) => {
  const gateway = await start(
    t,
    (host) => standalone(host) + policy("guard", "HTTPRoute", "shop", "{ authorizaton: { rules: ['true'] } }"),
  );
  const closed = await fetch(`${gateway.url()}/shop`);
  assert.deepEqual([closed.status, closed.headers.get("x-gateway-error")], [500, "policy_invalid"]);
  assert.deepEqual(await statuses(`${gateway.url()}/web`, 1), [200]);
});

test("the manifests of a cluster run as they are, with a map of services", async (t) => {
  const gateway = await start(
    t,
    (host) => `
services: { "cart:80": "${host}" }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge }
spec:
  gatewayClassName: any
  listeners: [{ name: http, port: 0, protocol: HTTP }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: cart }
spec:
  parentRefs: [{ name: edge }]
  rules:
    - matches: [{ path: { type: PathPrefix, value: /cart } }]
      filters:
        - { type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /v1 } } }
        - { type: RequestHeaderModifier, requestHeaderModifier: { set: [{ name: x-shop, value: yes }] } }
      backendRefs: [{ name: cart, port: 80 }]
    - matches: [{ path: { type: Exact, value: /old } }]
      filters: [{ type: RequestRedirect, requestRedirect: { hostname: new.example, statusCode: 301 } }]
    - matches: [{ path: { type: PathPrefix, value: /guarded } }]
      filters: [{ type: ExtensionRef, extensionRef: { group: x, kind: Y, name: z } }]
      backendRefs: [{ name: cart, port: 80 }]
${policy("limits", "HTTPRoute", "cart", "{ rateLimit: { local: [{ requests: 3, unit: Hours }] } }")}`,
  );
  const seen = (await (await fetch(`${gateway.url()}/cart/7?x=1`)).json()) as {
    url: string;
    headers: Record<string, string>;
  };
  assert.deepEqual([seen.url, seen.headers["x-shop"]], ["/v1/7?x=1", "yes"]);
  const redirect = await fetch(`${gateway.url()}/old`, { redirect: "manual" });
  assert.deepEqual([redirect.status, redirect.headers.get("location")], [301, "http://new.example/old"]);
  assert.equal((await fetch(`${gateway.url()}/guarded`)).headers.get("x-gateway-error"), "policy_invalid");
  // All rules of the route share the policy's budget: two of three are used.
  assert.deepEqual(await statuses(`${gateway.url()}/cart`, 2), [200, 429]);
});
