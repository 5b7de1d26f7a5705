/**
 * A policy that should protect and cannot be applied closes its targets, however it is written.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { conditions, LIMIT, policy, translate, WEB } from "../../../test/support/resources/translate.ts";

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

for (const kind of ["httproute", "HttpRoute", ""]) {
  test(`a protection whose target has the kind "${kind}" closes that target`, () => {
    const ref = `targetRefs: [{ group: gateway.networking.k8s.io, kind: "${kind}", name: web }]`;
    const result = translate(policy(`${ref}\ntraffic: { authorization: { rules: [jwt.sub] } }`));
    assert.ok(result.closures.some(({ target }) => target.kind === "route" && target.name === "web"));
    assert.deepEqual(translate(policy(`${ref}\n${LIMIT}`)).closures, [], "a limit does not");
  });
}

for (const kind of ["gatewaypolicy", "GatewayPolcy", "Policy", "null"]) {
  test(`a protection of our own group with the kind ${kind} closes its targets`, () => {
    const text = policy(`${WEB}\ntraffic: { authorization: { rules: [jwt.sub] } }`);
    const result = translate(text.replace("kind: GatewayPolicy", `kind: ${kind}`));
    assert.deepEqual(
      result.closures.map(({ target }) => target),
      [{ kind: "route", name: "web" }],
    );
    assert.match(result.problems.map((problem) => problem.toLine()).join("\n"), /kind: expected GatewayPolicy/);
  });
}

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

test("an unknown field in a limit is reported, and the authorization beside it stays attached", () => {
  const limit = "rateLimit: { local: [{ requests: 3, unit: Seconds, perClient: true }] }";
  const result = translate(policy(`${WEB}\ntraffic: { ${limit}, authorization: { rules: [jwt.sub] } }`));
  assert.deepEqual(
    result.attachments.map(({ kind }) => kind),
    ["authorization"],
  );
  const [accepted = "", attached] = conditions(result.policies[0]);
  assert.match(
    accepted,
    /Accepted False Invalid: spec\.traffic\.rateLimit.*perClient: unknown field.*other parts apply/,
  );
  assert.equal(attached, "Gateway default: Attached True Attached: Attached to all targets");
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
