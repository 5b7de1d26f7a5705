/** Gateways and routes as resource documents, and policies on them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { conditions, LIMIT, policy, translate } from "../../../test/support/resources/translate.ts";

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

test("a timeout of zero means no limit, also for the backend's default", () => {
  const { routes, problems } = translate(
    GATEWAY + ROUTE.replace("timeouts: { request: 5s }", "timeouts: { request: 0s, backendRequest: 0h }"),
  );
  assert.deepEqual(problems, []);
  const policies = routes[0]?.route.policies as { timeout?: unknown } | undefined;
  assert.deepEqual(policies?.timeout, { requestTimeout: "0s", backendRequestTimeout: "0h" });
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

const corsCases: [written: string, translated: object][] = [
  [
    'allowOrigins: ["https://a.example"]',
    { allowOrigins: ["https://a.example"], allowMethods: ["GET", "HEAD", "POST"], maxAge: "5s" },
  ],
  ['allowOrigins: ["*"], allowMethods: ["*"], maxAge: 60', { allowOrigins: ["*"], allowMethods: ["*"], maxAge: "60s" }],
];
for (const [written, translated] of corsCases)
  test(`the CORS filter { ${written} } has the defaults of the Gateway API`, () => {
    const filter = `{ type: CORS, cors: { ${written} } }`;
    const { routes } = translate(
      GATEWAY + ROUTE.replace(/filters:[\s\S]*?timeouts/, `filters: [${filter}]\n      timeouts`),
    );
    assert.deepEqual(routes[0]?.route.policies?.cors, translated);
    assert.equal(routes[0]?.closed, undefined);
  });

test("a CORS filter with credentials for any origin blocks its rule", () => {
  for (const origin of ["*", "https://*"]) {
    const filter = `{ type: CORS, cors: { allowOrigins: ["${origin}"], allowCredentials: true } }`;
    const { routes } = translate(
      GATEWAY + ROUTE.replace(/filters:[\s\S]*?timeouts/, `filters: [${filter}]\n      timeouts`),
    );
    assert.match(String(routes[0]?.closed), /allowCredentials cannot be combined/);
  }
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
    yaml: GATEWAY.replace("8081, protocol: HTTP", "8081, protocol: UDP"),
    message: /UDP is not supported/,
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
