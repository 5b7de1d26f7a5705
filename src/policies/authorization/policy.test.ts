import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, type ExchangeParts, testEnv } from "../../../test/support/exchange.ts";
import type { GatewayError } from "../../core/errors.ts";
import { authorization } from "./policy.ts";

const isAdmin = '"admin" in jwt.roles';
const isUser = '"user" in jwt.roles';
const fails = "jwt.missing == 1";

function run(rules: unknown[], parts: ExchangeParts): GatewayError | undefined {
  const hooks = authorization.compile(authorization.schema.parse({ rules }), testEnv);
  try {
    assert.equal(hooks.access?.head?.(anExchange(parts)), undefined);
    return undefined;
  } catch (error) {
    return error as GatewayError;
  }
}

const cases: { name: string; rules: unknown[]; roles?: string[]; admitted: boolean }[] = [
  { name: "one rule holds", rules: [isAdmin], roles: ["admin"], admitted: true },
  { name: "every plain rule holds", rules: [isAdmin, isUser], roles: ["admin", "user"], admitted: true },
  { name: "the second plain rule fails", rules: [isAdmin, isUser], roles: ["admin"], admitted: false },
  { name: "the claim is absent", rules: [isAdmin], admitted: false },
  { name: "the value is truthy but not true", rules: ["1"], roles: [], admitted: false },
  {
    name: "one of two allow rules holds",
    rules: [{ allow: isAdmin }, { allow: isUser }],
    roles: ["user"],
    admitted: true,
  },
  {
    name: "an allow rule fails to evaluate but another holds",
    rules: [{ allow: fails }, { allow: isUser }],
    roles: ["user"],
    admitted: true,
  },
  { name: "no allow rule holds", rules: [{ allow: isAdmin }], roles: ["user"], admitted: false },
  {
    name: "a deny rule is true",
    rules: [{ allow: isUser }, { deny: isAdmin }],
    roles: ["user", "admin"],
    admitted: false,
  },
  {
    name: "a deny rule is false and none allows or requires",
    rules: [{ deny: isAdmin }],
    roles: ["user"],
    admitted: true,
  },
  { name: "a deny rule cannot be evaluated", rules: [{ deny: fails }], roles: ["user"], admitted: false },
  { name: "a deny rule is not a boolean", rules: [{ deny: "'no'" }], roles: ["user"], admitted: false },
  {
    name: "a required rule holds beside an allow rule that does",
    rules: [{ require: isUser }, { allow: isAdmin }],
    roles: ["user", "admin"],
    admitted: true,
  },
  {
    name: "a required rule fails although an allow rule holds",
    rules: [{ require: isUser }, { allow: isAdmin }],
    roles: ["admin"],
    admitted: false,
  },
];
for (const { name, rules, roles, admitted } of cases) {
  test(`${admitted ? "admits" : "denies"} when ${name} [A16] [S2.3-1]`, () => {
    const error = run(rules, roles === undefined ? {} : { jwt: { roles } });
    if (admitted) assert.equal(error, undefined);
    else assert.equal(error?.code, "authorization_denied");
  });
}

test("roles inside a nested claim are readable [S2.3-2] [S2.3-4]", () => {
  const rules = ['"admin" in jwt.realm_access.roles'];
  assert.equal(run(rules, { jwt: { realm_access: { roles: ["admin"] } } }), undefined);
  assert.equal(run(rules, { jwt: { realm_access: { roles: ["user"] } } })?.status, 403);
});

test("prototype members are not claims [E3]", () => {
  for (const rule of ["jwt.constructor != null", "has(jwt.__proto__)", 'jwt["constructor"] != 1']) {
    assert.equal(run([rule], { jwt: {} })?.code, "authorization_denied", rule);
  }
});

test("a denial reports the failed rule and its values to the operator only", () => {
  const error = run([isAdmin], { jwt: { roles: ["user"] } });
  assert.equal(error?.message, "authorization failed");
  assert.match(error?.detail ?? "", /the rule `"admin" in jwt\.roles` is not true: jwt\.roles is \["user"\]/);
  assert.match(run([isAdmin], { jwt: {} })?.detail ?? "", /cannot be evaluated/);
  assert.match(run([{ allow: isAdmin }], { jwt: { roles: [] } })?.detail ?? "", /no allow rule is true/);
});

test("header values are never in the detail", () => {
  const headers = { authorization: "Bearer planted-secret" };
  for (const rule of ['request.headers["authorization"] == "x"', 'request.headers["x"] == "y"']) {
    assert.ok(!(run([rule], { headers })?.detail ?? "").includes("planted-secret"));
  }
});

for (const config of [
  {},
  { rules: [] },
  { rules: "true" },
  { rules: ["true"], extra: 1 },
  { rules: ['"admin" in'] },
  { rules: [{ allow: "true", deny: "true" }] },
  { rules: [{ permit: "true" }] },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(authorization.schema.safeParse(config).success, false);
  });
}
