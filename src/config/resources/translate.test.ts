import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { definePolicy, type PolicyDefinition } from "../../core/policy.ts";
import { secret } from "../../core/schema.ts";
import { cors } from "../../policies/cors/policy.ts";
import { rateLimit } from "../../policies/rate-limit/policy.ts";
import { requestHeaderModifier } from "../../policies/request-header-modifier/policy.ts";
import { requestRedirect } from "../../policies/request-redirect/policy.ts";
import { responseHeaderModifier } from "../../policies/response-header-modifier/policy.ts";
import { timeout } from "../../policies/timeout/policy.ts";
import { urlRewrite } from "../../policies/url-rewrite/policy.ts";
import { configSchema } from "../schema/schema.ts";
import { parseSource } from "../text/yaml-source.ts";
import type { PolicyResource, ResourceInput, ResourceResult } from "./documents.ts";
import { translateResources } from "./translate.ts";

/** Stands for the security policies of the real list, whose own rules are tested where they live. */
const authorization = definePolicy({
  kind: "authorization",
  doc: "Admits.",
  scopes: ["gateway", "route"],
  role: "security",
  schema: z.strictObject({ rules: z.array(z.string().startsWith("jwt", "bad rule")).min(1) }),
  compile: () => ({}),
});
const apiKey = definePolicy({
  kind: "apiKey",
  doc: "Knows keys.",
  scopes: ["route"],
  role: "security",
  schema: z.strictObject({ keys: z.array(z.strictObject({ key: secret() })) }),
  compile: () => ({}),
});
const policies: readonly PolicyDefinition[] = [
  apiKey,
  cors,
  authorization,
  rateLimit,
  requestHeaderModifier,
  responseHeaderModifier,
  timeout,
  urlRewrite,
  requestRedirect,
];

const standalone: ResourceInput["standalone"] = {
  gateways: [{ name: "default", policyKinds: [], port: 3000 }],
  routes: [
    { name: "web", policyKinds: [], gateways: ["default"] },
    { name: "styled", policyKinds: ["cors"], gateways: ["default"] },
    { name: "lonely", policyKinds: [], gateways: [] },
  ],
  services: { "web:8080": "127.0.0.1:9000", "shop/cart": { host: "127.0.0.1:9001" }, plain: "10.0.0.1" },
};

function translate(yaml: string, more: Partial<ResourceInput> = {}): ResourceResult {
  const { documents, problems } = parseSource("test.yaml", yaml, {});
  assert.deepEqual(problems, []);
  const routeSchema = configSchema.shape.routes.unwrap().element;
  return translateResources({
    documents,
    standalone,
    policies,
    routeSchema,
    nowMs: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
    ...more,
  });
}

function policy(spec: string, name = "limits"): string {
  return `---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: ${name}, namespace: default }
spec:
${spec.replace(/^/gm, "  ")}
`;
}

const WEB = "targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: web }]";
const LIMIT = "traffic: { rateLimit: { local: [{ requests: 3, unit: Seconds, burst: 3 }] } }";

function conditions(resource: PolicyResource | undefined): string[] {
  return (resource?.status.ancestors ?? []).flatMap(({ ancestorRef, conditions: list }) =>
    list.map(
      ({ type, status, reason, message }) =>
        `${ancestorRef.kind} ${ancestorRef.name}: ${type} ${status} ${reason}: ${message}`,
    ),
  );
}

test("a valid policy is accepted and attached [S2.6-9] [S2.6-12]", () => {
  const result = translate(policy(`${WEB}\n${LIMIT}`));
  assert.deepEqual(result.problems, []);
  assert.deepEqual(conditions(result.policies[0]), [
    "Gateway default: Accepted True Valid: Policy accepted",
    "Gateway default: Attached True Attached: Attached to all targets",
  ]);
  assert.deepEqual(
    result.attachments.map(({ target, kind, config, owner }) => ({ target, kind, config, owner })),
    [
      {
        target: { kind: "route", name: "web" },
        kind: "rateLimit",
        config: { local: [{ requests: 3, unit: "Seconds", burst: 3 }] },
        owner: "HTTPRoute default/web (GatewayPolicy default/limits)",
      },
    ],
  );
});

test("the status is written in full [S2.6-7]", () => {
  const [resource] = translate(policy(`${WEB}\n${LIMIT}`)).policies;
  assert.deepEqual(resource?.status, {
    ancestors: [
      {
        ancestorRef: { group: "gateway.networking.k8s.io", kind: "Gateway", namespace: "default", name: "default" },
        controllerName: "policy.gateway.internal/gateway",
        conditions: [
          {
            type: "Accepted",
            status: "True",
            reason: "Valid",
            message: "Policy accepted",
            observedGeneration: 1,
            lastTransitionTime: "2026-01-02T03:04:05Z",
          },
          {
            type: "Attached",
            status: "True",
            reason: "Attached",
            message: "Attached to all targets",
            observedGeneration: 1,
            lastTransitionTime: "2026-01-02T03:04:05Z",
          },
        ],
      },
    ],
  });
});

const invalid = [
  {
    name: "a burst of tokens",
    limit: "{ tokens: 3, unit: Seconds, burst: 1 }",
    message: "spec.traffic.rateLimit.local[0].burst: `burst` can only be used with `requests`",
  },
  {
    name: "both requests and tokens",
    limit: "{ tokens: 3, requests: 2, unit: Seconds }",
    message: "spec.traffic.rateLimit.local[0]: use only one of `requests`, `tokens`, found requests and tokens",
  },
  {
    name: "neither",
    limit: "{ unit: Seconds }",
    message: "spec.traffic.rateLimit.local[0]: one of `requests`, `tokens` is required",
  },
  {
    name: "no unit",
    limit: "{ requests: 3 }",
    message: "spec.traffic.rateLimit.local[0].unit: required field is missing",
  },
  {
    name: "an unknown field",
    limit: "{ requests: 3, unit: Seconds, brust: 2 }",
    message: 'spec.traffic.rateLimit.local[0].brust: unknown field, did you mean "burst"?',
  },
];
for (const { name, limit, message } of invalid) {
  test(`a limit with ${name} is not accepted and leaves its target open [S2.6-3]`, () => {
    const result = translate(policy(`${WEB}\ntraffic: { rateLimit: { local: [${limit}] } }`));
    assert.deepEqual(conditions(result.policies[0]), [
      `Gateway default: Accepted False Invalid: ${message}`,
      "Gateway default: Attached False Invalid: Not attached: no part of the policy is valid",
    ]);
    assert.deepEqual([result.attachments, result.closures], [[], []]);
    assert.match(
      result.problems[0]?.toLine() ?? "",
      /^test\.yaml:\d+:\d+: GatewayPolicy default\/limits: spec\.traffic/,
    );
  });
}

const targets = [
  {
    name: "a missing target",
    ref: "{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: nowhere }",
    expected: [
      "HTTPRoute nowhere: Accepted True Valid: Policy accepted",
      "HTTPRoute nowhere: Attached False TargetNotFound: HTTPRoute default/nowhere was not found",
    ],
  },
  {
    name: "a target whose name is misspelt",
    ref: "{ group: gateway.networking.k8s.io, kind: Gateway, name: defualt }",
    expected: [
      "Gateway defualt: Accepted True Valid: Policy accepted",
      'Gateway defualt: Attached False TargetNotFound: Gateway default/defualt was not found, did you mean "default"?',
    ],
  },
  {
    name: "a kind that is not supported",
    ref: '{ group: "", kind: Service, name: web }',
    expected: [
      "Service web: Accepted False Invalid: spec.targetRefs[0].kind: the kind Service is not supported: use Gateway or HTTPRoute",
      "Service web: Attached False TargetNotSupported: spec.targetRefs[0].kind: the kind Service is not supported: use Gateway or HTTPRoute",
    ],
  },
  {
    name: "a wrong group",
    ref: "{ group: apps, kind: Gateway, name: default }",
    expected: [
      "Gateway default: Accepted False Invalid: spec.targetRefs[0].group: expected gateway.networking.k8s.io",
      "Gateway default: Attached False TargetNotSupported: spec.targetRefs[0].group: expected gateway.networking.k8s.io",
    ],
  },
  {
    name: "a route that no gateway serves",
    ref: "{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: lonely }",
    expected: [
      "HTTPRoute lonely: Accepted True Valid: Policy accepted",
      "HTTPRoute lonely: Attached False TargetNotAttached: HTTPRoute default/lonely is not attached to any Gateway",
    ],
  },
];
for (const { name, ref, expected } of targets) {
  test(`${name} is named in the status`, () => {
    const result = translate(policy(`targetRefs: [${ref}]\n${LIMIT}`));
    assert.deepEqual(conditions(result.policies[0]), expected);
    assert.deepEqual(result.attachments, []);
  });
}

test("one missing target does not keep the policy from the others", () => {
  const refs =
    "targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: web }, { group: gateway.networking.k8s.io, kind: HTTPRoute, name: gone }]";
  const result = translate(policy(`${refs}\n${LIMIT}`));
  assert.deepEqual(conditions(result.policies[0]), [
    "HTTPRoute gone: Accepted True Valid: Policy accepted",
    "HTTPRoute gone: Attached False TargetNotFound: HTTPRoute default/gone was not found",
    "Gateway default: Accepted True Valid: Policy accepted",
    "Gateway default: Attached True PartiallyAttached: Attached to 1 of 2 targets: HTTPRoute default/gone was not found",
  ]);
  assert.equal(result.attachments.length, 1);
});

for (const refs of ["", "targetRefs: []\n", "targetRefs: {}\n", "targetRefs: null\n", "targetRefs: web\n"]) {
  test(`a policy without targets is not accepted and says so on itself: ${JSON.stringify(refs)}`, () => {
    assert.deepEqual(conditions(translate(policy(`${refs}${LIMIT}`)).policies[0]), [
      "GatewayPolicy limits: Accepted False Invalid: spec.targetRefs: a list with at least one target is required",
      "GatewayPolicy limits: Attached False Invalid: Not attached: the policy has no usable target",
    ]);
  });
}

const REPEATED = ["", ", namespace: default"];
for (const more of REPEATED) {
  test(`a target that is named twice counts once, and the status says so${more}`, () => {
    const ref = "{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: web";
    const result = translate(policy(`targetRefs: [${ref} }, ${ref}${more} }]\n${LIMIT}`));
    assert.equal(result.attachments.length, 1);
    assert.deepEqual(conditions(result.policies[0]), [
      "Gateway default: Accepted True Valid: Policy accepted; spec.targetRefs[1] repeats HTTPRoute default/web, which counts once",
      "Gateway default: Attached True Attached: Attached to all targets",
    ]);
  });
}

test("one bad policy does not stop the others", () => {
  const bad = policy(`${WEB}\ntraffic: { rateLimit: 5 }`, "bad");
  const result = translate(bad + policy(`${WEB}\n${LIMIT}`, "good"));
  assert.equal(result.attachments.length, 1);
  assert.deepEqual(
    result.policies.map(({ metadata, status }) => [metadata.name, status.ancestors[0]?.conditions[0]?.status]),
    [
      ["bad", "False"],
      ["good", "True"],
    ],
  );
});

const closing = [
  { name: "an invalid rule", traffic: "{ authorization: { rules: [oops] } }" },
  { name: "an empty part", traffic: "{ authorization: {} }" },
  { name: "a misspelt name", traffic: "{ authorizaton: { rules: [jwt.sub] } }" },
  { name: "a name without the usual letters", traffic: "{ athorization: { rules: [jwt.sub] } }" },
  { name: "a policy that does not exist here", traffic: "{ jwtAuthentication: {} }" },
];
for (const { name, traffic } of closing) {
  test(`a security part with ${name} closes its targets`, () => {
    const result = translate(policy(`${WEB}\ntraffic: ${traffic}`));
    assert.deepEqual(
      result.closures.map(({ target }) => target),
      [{ kind: "route", name: "web" }],
    );
    assert.match(
      conditions(result.policies[0])[0] ?? "",
      /Accepted False .*the targets are blocked until this is fixed/,
    );
  });
}

test("a misspelt section that holds a security part closes its targets", () => {
  const result = translate(policy(`${WEB}\ntrafic: { authorization: { rules: [jwt.sub] } }`));
  assert.equal(result.closures.length, 1);
});

test("a protection whose target is named with a wrong group closes that target", () => {
  const ref = "targetRefs: [{ group: apps, kind: HTTPRoute, name: web }]";
  const result = translate(policy(`${ref}\ntraffic: { authorization: { rules: [jwt.sub] } }`));
  assert.deepEqual(
    result.closures.map(({ target }) => target),
    [{ kind: "route", name: "web" }],
  );
  assert.deepEqual(translate(policy(`${ref}\n${LIMIT}`)).closures, [], "a limit does not");
});

const seventeen = Array.from({ length: 17 }, () => "{ group: gateway.networking.k8s.io, kind: Gateway, name: edge }");
for (const { name, refs } of [
  { name: "under the name of one", refs: WEB.replace("targetRefs: [", "targetRef: ").replace(/]$/, "") },
  { name: "as one instead of a list", refs: WEB.replace("targetRefs: [", "targetRefs: ").replace(/]$/, "") },
  { name: "behind the sixteenth", refs: WEB.replace("targetRefs: [", `targetRefs: [${seventeen.join(", ")}, `) },
]) {
  test(`a protection whose target is written ${name} closes that target`, () => {
    const result = translate(policy(`${refs}\ntraffic: { authorization: { rules: [jwt.sub] } }`));
    assert.ok(result.closures.some(({ target }) => target.kind === "route" && target.name === "web"));
    assert.deepEqual(translate(policy(`${refs}\n${LIMIT}`)).closures, [], "a limit does not");
  });
}

test("an invalid limit leaves the valid authorization beside it standing", () => {
  const result = translate(policy(`${WEB}\ntraffic: { rateLimit: {}, authorization: { rules: [jwt.sub] } }`));
  assert.deepEqual(
    result.attachments.map(({ kind }) => kind),
    ["authorization"],
  );
  assert.match(conditions(result.policies[0])[0] ?? "", /Accepted True PartiallyValid: spec\.traffic\.rateLimit/);
  assert.deepEqual(result.closures, []);
});

test("a document of the same name does not count, and closes what it was to protect", () => {
  const result = translate(
    policy(`${WEB}\n${LIMIT}`) + policy(`${WEB}\ntraffic: { authorization: { rules: [jwt.sub] } }`),
  );
  assert.deepEqual(
    result.attachments.map(({ kind }) => kind),
    ["rateLimit"],
  );
  assert.equal(result.closures.length, 1);
});

for (const { name, traffic } of [
  { name: "in its place", traffic: "{ apiKeyAuthentication: { keys: [{ key: hunter2 }] } }" },
  { name: "in a part that is wrong", traffic: "{ apiKeyAuthentication: { keys: [{ kye: hunter2 }] } }" },
  { name: "in a misspelt part", traffic: "{ apiKeyAuthentcation: { keys: [{ key: hunter2 }] } }" },
  { name: "in a header", traffic: '{ headerModifiers: { request: { set: { authorization: "Bearer hunter2" } } } }' },
]) {
  test(`a secret ${name} is not in the resource that is shown`, () => {
    const [resource] = translate(policy(`${WEB}\ntraffic: ${traffic}`)).policies;
    assert.doesNotMatch(JSON.stringify(resource), /hunter2/);
    assert.match(JSON.stringify(resource?.spec), /<redacted>/);
  });
}

test("limits of several policies stack; of a pure setting the first stands and the other is told", () => {
  const styled = "targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: styled }]";
  const result = translate(
    policy(`${WEB}\n${LIMIT}`, "a") +
      policy(`${WEB}\n${LIMIT}\n`, "b") +
      policy(`${WEB}\ntraffic: { cors: { allowOrigins: ["*"] } }`, "c") +
      policy(`${WEB}\ntraffic: { cors: { allowOrigins: ["https://a.example"] } }`, "d") +
      policy(`${styled}\ntraffic: { cors: { allowOrigins: ["*"] } }`, "e"),
  );
  assert.deepEqual(
    result.attachments.map(({ kind, owner }) => `${kind} ${owner.at(-2)}`),
    ["rateLimit a", "rateLimit b", "cors c"],
  );
  assert.deepEqual(
    conditions(result.policies[3])[0],
    "Gateway default: Accepted False Conflicted: spec.traffic.cors: HTTPRoute default/web already has cors from GatewayPolicy default/c",
  );
  assert.match(
    conditions(result.policies[4])[0] ?? "",
    /Conflicted.*already has cors from the standalone configuration/,
  );
});

test("timeouts and headerModifiers become the policies of the standalone document", () => {
  const traffic =
    "traffic: { timeouts: { request: 10s }, headerModifiers: { request: { set: { x-a: b } }, response: { remove: [x-c] } } }";
  const result = translate(policy(`${WEB}\n${traffic}`));
  assert.deepEqual(
    result.attachments.map(({ kind, config }) => [kind, config]),
    [
      ["timeout", { requestTimeout: 10_000 }],
      ["requestHeaderModifier", { set: { "x-a": "b" } }],
      ["responseHeaderModifier", { remove: ["x-c"] }],
    ],
  );
});

test("a condition's time changes only with its status, and the generation with the spec", () => {
  const first = translate(policy(`${WEB}\n${LIMIT}`));
  const later = { nowMs: Date.UTC(2027, 0, 1), previous: first.policies };
  const same = translate(policy(`${WEB}\n${LIMIT}`), later);
  assert.deepEqual(same.policies, first.policies);
  const changed = translate(policy(`${WEB}\ntraffic: { rateLimit: {} }`), later);
  const [accepted] = changed.policies[0]?.status.ancestors[0]?.conditions ?? [];
  assert.deepEqual(
    [accepted?.status, accepted?.lastTransitionTime, accepted?.observedGeneration],
    ["False", "2027-01-01T00:00:00Z", 2],
  );
});

const GATEWAY = `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge }
spec:
  gatewayClassName: any
  listeners:
    - { name: http, port: 8080, protocol: HTTP, hostname: "*.example.com" }
    - { name: other, port: 8081, protocol: HTTP }
`;
const ROUTE = `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: shop }
spec:
  parentRefs: [{ name: edge, sectionName: http }]
  hostnames: [a.example.com, b.example.org]
  rules:
    - name: cart
      matches:
        - { path: { type: PathPrefix, value: /cart }, method: GET, headers: [{ name: x-v, value: "1" }], queryParams: [{ name: q, type: RegularExpression, value: "a+" }] }
      filters:
        - { type: RequestHeaderModifier, requestHeaderModifier: { set: [{ name: x-a, value: b }], remove: [x-c] } }
        - { type: URLRewrite, urlRewrite: { hostname: c.example, path: { type: ReplacePrefixMatch, replacePrefixMatch: / } } }
      timeouts: { request: 5s }
      backendRefs: [{ name: web, port: 8080, weight: 3 }, { name: cart, namespace: shop, weight: 1 }]
    - backendRefs: [{ name: plain, port: 80 }]
`;

test("a Gateway and an HTTPRoute become gateways and routes as the standalone document writes them", () => {
  const result = translate(GATEWAY + ROUTE);
  assert.deepEqual(result.problems, []);
  assert.deepEqual(
    result.gateways.map(({ name, port, protocol }) => ({ name, port, protocol })),
    [
      { name: "edge/http", port: 8080, protocol: "HTTP" },
      { name: "edge/other", port: 8081, protocol: "HTTP" },
    ],
  );
  assert.deepEqual(
    result.routes.map(({ route }) => route),
    [
      {
        name: "shop/cart",
        gateways: ["edge/http"],
        hostnames: ["a.example.com"],
        matches: [
          {
            path: { pathPrefix: "/cart" },
            method: "GET",
            headers: [{ name: "x-v", exact: "1" }],
            query: [{ name: "q", regex: "a+" }],
          },
        ],
        policies: {
          requestHeaderModifier: { set: { "x-a": "b" }, remove: ["x-c"] },
          urlRewrite: { authority: "c.example", path: { prefix: "/" } },
          timeout: { requestTimeout: "5s" },
        },
        backends: [
          { host: "127.0.0.1:9000", weight: 3 },
          { host: "127.0.0.1:9001", weight: 1 },
        ],
      },
      {
        name: "shop/rule1",
        gateways: ["edge/http"],
        hostnames: ["a.example.com"],
        matches: [{ path: { pathPrefix: "/" } }],
        backends: [{ host: "10.0.0.1:80" }],
      },
    ],
  );
});

test("a policy on an HTTPRoute or Gateway document shares its budgets over all rules or listeners", () => {
  const refs =
    "targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop }, { group: gateway.networking.k8s.io, kind: Gateway, name: edge }]";
  const result = translate(GATEWAY + ROUTE + policy(`${refs}\n${LIMIT}`));
  assert.deepEqual(
    result.attachments.map(({ target, owner }) => [target.name, owner]),
    [
      ["shop/cart", "HTTPRoute default/shop (GatewayPolicy default/limits)"],
      ["shop/rule1", "HTTPRoute default/shop (GatewayPolicy default/limits)"],
      ["edge/http", "Gateway default/edge (GatewayPolicy default/limits)"],
      ["edge/other", "Gateway default/edge (GatewayPolicy default/limits)"],
    ],
  );
  assert.deepEqual(conditions(result.policies[0]), [
    "Gateway edge: Accepted True Valid: Policy accepted",
    "Gateway edge: Attached True Attached: Attached to all targets",
  ]);
});

test("a policy may name one section only", () => {
  const refs = "targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop, sectionName: cart }]";
  const result = translate(GATEWAY + ROUTE + policy(`${refs}\n${LIMIT}`));
  assert.deepEqual(
    result.attachments.map(({ target }) => target.name),
    ["shop/cart"],
  );
});

const faultyRoutes = [
  {
    name: "an unsupported filter",
    from: "filters:\n        - {",
    to: "filters:\n        - { type: ExtensionRef, extensionRef: {} }\n        - {",
    message: /the filter ExtensionRef is not supported; the rule is blocked/,
  },
  {
    name: "a header that frames the message",
    from: "name: x-a",
    to: "name: content-length",
    message: /policies\.requestHeaderModifier/,
  },
];
for (const { name, from, to, message } of faultyRoutes) {
  test(`a rule with ${name} is closed, the others are served`, () => {
    const result = translate(GATEWAY + ROUTE.replace(from, to));
    assert.match(result.problems.map((problem) => problem.toLine()).join("\n"), message);
    assert.deepEqual(
      result.routes.map(({ closed }) => closed !== undefined),
      [true, false],
    );
  });
}

const reported = [
  {
    name: "a Service that nobody knows",
    yaml: GATEWAY + ROUTE.replace("name: web, port", "name: unknown, port"),
    message: /Service default\/unknown was not found: add it to `services`/,
  },
  {
    name: "a Service whose name is misspelt",
    yaml: GATEWAY + ROUTE.replace("name: web, port", "name: wbe, port"),
    message: /Service default\/wbe was not found \(did you mean "web"\?\): add it to `services`/,
  },
  { name: "a Gateway that nobody knows", yaml: ROUTE, message: /Gateway default\/edge was not found$/m },
  {
    name: "a Gateway whose name is misspelt",
    yaml: GATEWAY + ROUTE.replace("name: edge", "name: egde"),
    message: /Gateway default\/egde was not found, did you mean "edge"\?/,
  },
  {
    name: "a listener protocol that is not supported",
    yaml: GATEWAY.replace("8081, protocol: HTTP", "8081, protocol: TCP"),
    message: /TCP is not supported/,
  },
  {
    name: "HTTPS without key files",
    yaml: GATEWAY.replace("8081, protocol: HTTP", "8081, protocol: HTTPS"),
    message: /set the files in tls\.options/,
  },
  { name: "a port that is taken", yaml: GATEWAY.replace("8081", "3000"), message: /port 3000 is already used/ },
  {
    name: "host names without anything in common",
    yaml: GATEWAY + ROUTE.replace("a.example.com, ", ""),
    message: /no listener of Gateway default\/edge serves this route/,
  },
  {
    name: "a kind that nobody knows",
    yaml: "kind: Deployment\nmetadata: { name: x }",
    message: /Deployment is not supported, ignored/,
  },
];
for (const { name, yaml, message } of reported) {
  test(`${name} is reported and stops nothing`, () => {
    assert.match(
      translate(yaml)
        .problems.map((problem) => problem.toLine())
        .join("\n"),
      message,
    );
  });
}

test("a route of another namespace is served only by listeners that allow it", () => {
  const foreign = ROUTE.replace("{ name: shop }", "{ name: shop, namespace: b }").replace(
    "{ name: edge, sectionName: http }",
    "{ name: edge, namespace: default }",
  );
  assert.equal(translate(GATEWAY + foreign).routes.length, 0);
  const open = GATEWAY.replace("port: 8081,", "port: 8081, allowedRoutes: { namespaces: { from: All } },");
  assert.deepEqual(
    translate(open + foreign).routes.map(({ route }) => route.name),
    ["b/shop/cart", "b/shop/rule1"],
  );
});
