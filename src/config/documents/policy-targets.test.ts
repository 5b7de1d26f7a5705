/** Targets of a GatewayPolicy: GRPCRoutes, and targets that labels select. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { conditions, LIMIT, policy, translate } from "../../../test/support/resources/translate.ts";
import { maySelect } from "./policy-targets.ts";

const API = "apiVersion: gateway.networking.k8s.io/v1";
const document = (kind: string, name: string, labels: string, spec: string): string =>
  `---\n${API}\nkind: ${kind}\nmetadata: { name: ${name}, labels: { ${labels} } }\nspec: ${spec}\n`;
const ROUTE_SPEC = "{ parentRefs: [{ name: edge }], rules: [{ backendRefs: [{ name: web, port: 8080 }] }] }";
const WORLD = [
  document("Gateway", "edge", "tier: edge", "{ listeners: [{ name: http, port: 8080, protocol: HTTP }] }"),
  document("HTTPRoute", "shop", "team: a, stage: live", ROUTE_SPEC),
  document("HTTPRoute", "cart", "team: b", ROUTE_SPEC),
  document("GRPCRoute", "calls", "team: a", ROUTE_SPEC),
].join("");
const GROUP = "group: gateway.networking.k8s.io";
const PROTECTION = "traffic: { authorization: { rules: [jwt.sub] } }";

const attachedTo = (spec: string): string[] =>
  translate(WORLD + policy(spec)).attachments.map(({ target }) => `${target.kind} ${target.name}`);
const closedBy = (spec: string): string[] =>
  translate(WORLD + policy(spec)).closures.map(({ target }) => `${target.kind} ${target.name}`);

test("a policy can target a GRPCRoute", () => {
  const spec = `targetRefs: [{ ${GROUP}, kind: GRPCRoute, name: calls }]\n${LIMIT}`;
  assert.deepEqual(attachedTo(spec), ["route grpc:calls"]);
  assert.deepEqual(conditions(translate(WORLD + policy(spec)).policies[0]), [
    "Gateway edge: Accepted True Valid: Policy accepted",
    "Gateway edge: Attached True Attached: Attached to all targets",
  ]);
});

const selections: [selector: string, attached: string[]][] = [
  ["kind: HTTPRoute, matchLabels: { team: a }", ["route shop"]],
  ["kind: HTTPRoute, matchLabels: { team: a, stage: test }", []],
  ["kind: GRPCRoute, matchLabels: { team: a }", ["route grpc:calls"]],
  ["kind: Gateway, matchLabels: { tier: edge }", ["gateway edge"]],
  ["kind: HTTPRoute, matchExpressions: [{ key: team, operator: In, values: [a, b] }]", ["route cart", "route shop"]],
  ["kind: HTTPRoute, matchExpressions: [{ key: stage, operator: DoesNotExist }]", ["route cart"]],
];
for (const [selector, attached] of selections)
  test(`the selector { ${selector} } selects ${attached.join(", ") || "nothing"}`, () => {
    assert.deepEqual(attachedTo(`targetSelectors: [{ ${GROUP}, ${selector} }]\n${LIMIT}`), attached);
  });

test("a target that is named and selected counts once", () => {
  const selector = `{ ${GROUP}, kind: HTTPRoute, matchLabels: { team: a } }`;
  const named = `targetRefs: [{ ${GROUP}, kind: HTTPRoute, name: shop }]`;
  const spec = `${named}\ntargetSelectors: [${selector}, ${selector}]\n${LIMIT}`;
  assert.deepEqual(attachedTo(spec), ["route shop"]);
});

test("a selector without a target is reported", () => {
  const spec = `targetSelectors: [{ ${GROUP}, kind: HTTPRoute, matchLabels: { team: c } }]\n${LIMIT}`;
  assert.deepEqual(conditions(translate(WORLD + policy(spec)).policies[0]), [
    "GatewayPolicy limits: Accepted True Valid: Policy accepted",
    "GatewayPolicy limits: Attached False TargetNotFound: spec.targetSelectors[0]: no target in the namespace default has these labels",
  ]);
});

test("targets of other namespaces and of the standalone configuration are not selected", () => {
  const spec = `targetSelectors: [{ ${GROUP}, kind: HTTPRoute, matchExpressions: [{ key: a, operator: DoesNotExist }] }]`;
  const elsewhere = policy(`${spec}\n${LIMIT}`).replace("namespace: default", "namespace: other");
  assert.deepEqual(translate(WORLD + elsewhere).attachments, []);
  assert.deepEqual(attachedTo(`${spec}\n${LIMIT}`), ["route cart", "route shop"]);
});

const SERVICES = ["backend cart/backend0", "backend shop/backend0", "backend grpc:calls/backend0"];
const ALL = ["gateway edge", "route cart", "route shop", "route grpc:calls", ...SERVICES];
const invalid: [selectors: string, closed: string[]][] = [
  ["[{ GROUP, kind: HTTPRoute, matchLabels: {} }]", ["route cart", "route shop"]],
  ["[{ GROUP, kind: HTTPRoute, matchLables: { team: a } }]", ["route cart", "route shop"]],
  [
    "[{ GROUP, kind: HTTPRoute, matchExpressions: [{ key: a, operator: in, values: [b] }] }]",
    ["route cart", "route shop"],
  ],
  ["[{ GROUP, kind: HTTPRoute, matchExpressions: [{ key: a, operator: In }] }]", ["route cart", "route shop"]],
  ["[{ kind: GRPCRoute, matchLabels: { team: a } }]", ["route grpc:calls"]],
  ["[{ GROUP, kind: gateway, matchLabels: { tier: edge } }]", ["gateway edge"]],
  ["[{ GROUP, kind: Service, matchLabels: { a: b } }]", SERVICES],
  ["[{ GROUP, kind: Sevice, matchLabels: { a: b } }]", ALL],
  ["{ GROUP, kind: HTTPRoute, matchLabels: { team: a } }", ALL],
];
for (const [selectors, closed] of invalid) {
  const written = `targetSelectors: ${selectors.replace("GROUP", GROUP)}`;
  test(`a protecting policy with ${written} blocks the targets that it could mean`, () => {
    assert.deepEqual(closedBy(`${written}\n${PROTECTION}`), closed);
    assert.deepEqual(closedBy(`${written}\n${LIMIT}`), []);
    assert.match(
      String(conditions(translate(WORLD + policy(`${written}\n${PROTECTION}`)).policies[0])),
      /Accepted False Invalid/,
    );
  });
}

test("a data plane gets the policies that select its objects or may block them", () => {
  const selector = { group: "gateway.networking.k8s.io", kind: "HTTPRoute", matchLabels: { team: "a" } };
  assert.equal(maySelect(undefined, {}), false);
  assert.equal(maySelect([selector], { team: "a" }), true);
  assert.equal(maySelect([selector], { team: "b" }), false);
  assert.equal(maySelect([{ ...selector, matchLabels: {} }], {}), true);
  assert.equal(maySelect(selector, {}), true);
});
