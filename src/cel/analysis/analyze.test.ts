import assert from "node:assert/strict";
import { test } from "node:test";
import { compileExpression, ExpressionError } from "../expression.ts";
import { ATTRIBUTE_NAMES } from "../values/attributes.ts";

const ATTRIBUTES = [...ATTRIBUTE_NAMES].join(", ");

const refused = [
  // Syntax: the parser steps back to the last complete expression.
  {
    source: "jwt.sub ==\n  && true",
    message: "cel: syntax error at `== && true`: expected a value after `==`",
    at: "1:9",
  },
  {
    source: "jwt.sub jwt.sub",
    message: "cel: syntax error at `jwt.sub`: expected an operator such as `==` or `&&` before `jwt`",
    at: "1:9",
  },
  { source: "jwt.?sub", message: "cel: syntax error at `.?sub`: expected the name of a field after `.`", at: "1:4" },
  // Functions.
  {
    source: "jwt.sub.lowerCase()",
    message: 'cel: unknown function "lowerCase", did you mean "lowerAscii"?',
    at: "1:9",
  },
  {
    source: "jwt.sub.startWith('a')",
    message: 'cel: unknown function "startWith", did you mean "startsWith"?',
    at: "1:9",
  },
  {
    source: "true &&\n  base64.encod(jwt.sub)",
    message: 'cel: unknown function "base64.encod", did you mean "base64.encode"?',
    at: "2:10",
  },
  { source: "frobnicate(1)", message: 'cel: unknown function "frobnicate"', at: "1:1" },
  { source: "jwt.sub.startsWith()", message: 'cel: "startsWith" takes 1 argument, not 0', at: "1:9" },
  { source: "jwt.sub.replace('a')", message: 'cel: "replace" takes 2 or 3 arguments, not 1', at: "1:9" },
  { source: "default(jwt.sub)", message: 'cel: "default" takes 2 arguments, not 1', at: "1:1" },
  { source: "coalesce()", message: 'cel: "coalesce" takes at least 1 argument, not 0', at: "1:1" },
  { source: "jwt.sub.json()", message: 'cel: "json" is called as json(x)', at: "1:9" },
  { source: "contains(jwt.sub, 'a')", message: 'cel: "contains" is called as x.contains(…)', at: "1:1" },
  {
    source: "has(jwt)",
    message: 'cel: "has" is written as has(a.b): its argument must end in a field name',
    at: "1:1",
  },
  { source: "jwt.roles.all('x', true)", message: 'cel: "all" is written as list.all(name, condition)', at: "1:11" },
  // Attributes.
  {
    source: "user == 'a'",
    message: 'cel: unknown attribute "user", did you mean "jwt.sub", "apiKey.name", or "basicAuth.username"?',
    at: "1:1",
  },
  { source: "jwt.sub and true", message: "cel: syntax error at `and true`: write `&&` instead of `and`", at: "1:9" },
  { source: "jwt.sub in", message: "cel: syntax error at `in`: expected a list or a map after `in`", at: "1:9" },
  { source: "jwt.sub == ", message: "cel: syntax error at `==`: expected a value after `==`", at: "1:9" },
  { source: "jtw.sub == 'a'", message: 'cel: unknown attribute "jtw", did you mean "jwt"?', at: "1:1" },
  { source: "reqest.path == '/'", message: 'cel: unknown attribute "reqest", did you mean "request"?', at: "1:1" },
  { source: "api_key.user_id", message: 'cel: unknown attribute "api_key", did you mean "apiKey"?', at: "1:1" },
  {
    source: "jwt.roles.exists(role, rol == 'a')",
    message: 'cel: unknown attribute "rol", did you mean "role"?',
    at: "1:24",
  },
  {
    source: "jwt.roles.exists(role, true) && role == 'a'",
    message: `cel: unknown attribute "role"; expected ${ATTRIBUTES}`,
    at: "1:33",
  },
  {
    source: "k0123456789abcdef01234567",
    message: "cel: unknown attribute of 25 characters (a fixed text needs quotes inside the expression)",
    at: "1:1",
  },
  { source: "constructor", message: `cel: unknown attribute "constructor"; expected ${ATTRIBUTES}`, at: "1:1" },
  { source: "__proto__.x", message: `cel: unknown attribute "__proto__"; expected ${ATTRIBUTES}`, at: "1:1" },
  // Constants and the rest.
  { source: "jwt.exp > 9223372036854775808", message: "cel: the number does not fit into 64 bits", at: "1:11" },
  {
    source: "google.protobuf.Any{}",
    message: 'cel: "google.protobuf.Any{…}": protobuf messages are not available',
    at: "1:1",
  },
  { source: "google.protobuf.Any", message: `cel: unknown attribute "google"; expected ${ATTRIBUTES}`, at: "1:1" },
  { source: "jwt.sub.matches('(a')", message: "cel: error parsing regexp: missing closing ): `(a`", at: "1:17" },
];
for (const { source, message, at } of refused) {
  test(`refuses ${JSON.stringify(source)}`, () => {
    assert.throws(
      () => compileExpression(source),
      (error) => {
        assert.ok(error instanceof ExpressionError);
        assert.equal(error.message, message);
        assert.equal(`${error.line}:${error.column}`, at);
        return true;
      },
    );
  });
}

const accepted = [
  "-9223372036854775808",
  "type(timestamp(0)) == google.protobuf.Timestamp",
  "math.least(1)",
  "matches('a', 'b')",
];
for (const source of accepted) {
  test(`accepts ${source}`, () => {
    assert.doesNotThrow(() => compileExpression(source));
  });
}

test("an expression of too many parts is refused", () => {
  assert.throws(() => compileExpression(`[${"1,".repeat(5000)}1]`), /more than 4096 parts/);
});
