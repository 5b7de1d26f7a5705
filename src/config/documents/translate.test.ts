/** Policies as resource documents: what is accepted, attached, closed, and said in the status. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { conditions, LIMIT, policy, translate, WEB } from "../../../test/support/resources/translate.ts";

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
        config: { local: [{ requests: 3, unit: "Seconds", burst: 3 }], unpriced: "refuse" },
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
    ref: '{ group: "", kind: Secret, name: web }',
    expected: [
      "Secret web: Accepted False Invalid: spec.targetRefs[0].kind: the kind Secret is not supported: use Gateway, ListenerSet, HTTPRoute, GRPCRoute, Service, or Backend",
      "Secret web: Attached False TargetNotSupported: spec.targetRefs[0].kind: the kind Secret is not supported: use Gateway, ListenerSet, HTTPRoute, GRPCRoute, Service, or Backend",
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
