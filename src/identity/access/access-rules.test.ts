import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { compileExpression } from "../../cel/expression.ts";
import { type AccessRule, compileAccessRules, denial } from "./access-rules.ts";

const exchange = anExchange({
  jwt: { role: "guest", roles: ["a", "b"], level: 3 },
  headers: { "x-key": "planted-secret" },
  path: "/x",
  query: "token=planted-secret",
});

function why(...rules: AccessRule[]): string | undefined {
  return denial(compileAccessRules(rules, "require", compileExpression), exchange.celAttributes)?.explain();
}

const reasons: [name: string, rule: AccessRule, reason: string | undefined][] = [
  ["a rule that holds", 'jwt.role == "guest"', undefined],
  [
    "a list of literals is not repeated as its own value",
    'jwt.role in ["admin", "developer"]',
    'the rule `jwt.role in ["admin", "developer"]` is not true: jwt.role is "guest"',
  ],
  [
    "nor a text, a number, a truth value or a map",
    'jwt.level > 5 && true && {"k": 1}["k"] == 1',
    'the rule `jwt.level > 5 && true && {"k": 1}["k"] == 1` is not true: jwt.level > 5 is false, jwt.level is 3',
  ],
  [
    "a value that only begins like a literal is shown",
    "size(jwt.roles) > 5",
    'the rule `size(jwt.roles) > 5` is not true: size(jwt.roles) is 2, jwt.roles is ["a","b"]',
  ],
  [
    "a clause that begins with a literal and reads something is shown",
    'jwt.level > 5 || "admin" in jwt.roles',
    'the rule `jwt.level > 5 || "admin" in jwt.roles` is not true: jwt.level > 5 is false, "admin" in jwt.roles is false, jwt.level is 3, jwt.roles is ["a","b"]',
  ],
  ["an expression that is all literals tells its source alone", '"a" in ["b"]', 'the rule `"a" in ["b"]` is not true'],
  [
    "a deny rule says that it is one",
    { deny: 'jwt.role == "guest"' },
    'the deny rule `jwt.role == "guest"` is true: jwt.role is "guest"',
  ],
  ["a deny rule that says neither", { deny: "jwt.level" }, "the deny rule `jwt.level` is not false"],
];
for (const [name, rule, reason] of reasons) {
  test(`reason of a denial: ${name}`, () => assert.equal(why(rule), reason));
}

for (const rule of [
  'request.headers["x-key"] == "other"',
  'request.uri == "other"',
  'request.pathAndQuery == "other"',
]) {
  test(`the reason for \`${rule}\` shows only the source, because it may read a secret`, () => {
    assert.equal(why(rule), `the rule \`${rule}\` is not true`);
  });
}

test("a denial names the values that no rule found, and lists every rule with its result", () => {
  const exchange = anExchange({ jwt: { sub: "carol" } });
  const rules = ['jwt.sub == "carol"', 'jwt.sub == "carol" && "dev" in jwt.groups', { deny: 'jwt.sub == "bob"' }];
  const denied = denial(compileAccessRules(rules, "require", compileExpression), exchange.celAttributes);
  assert.match(denied?.explain() ?? "", /jwt\.sub is "carol", .*jwt\.groups was not found$/);
  assert.deepEqual(
    denied?.checked().map(({ kind, isMet, values }) => [kind, isMet, values]),
    [
      ["deny", true, 'jwt.sub is "carol"'],
      ["require", true, 'jwt.sub is "carol"'],
      ["require", false, 'jwt.sub == "carol" is true, jwt.sub is "carol", jwt.groups was not found'],
    ],
  );
});
