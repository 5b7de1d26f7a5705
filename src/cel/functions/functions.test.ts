import assert from "node:assert/strict";
import { test } from "node:test";
import { compileExpression } from "../expression.ts";
import { FUNCTION_GROUPS } from "../reference.ts";
import { plainAttributes } from "../values/attribute-source.ts";
import { ATTRIBUTE_NAMES, ATTRIBUTES } from "../values/attributes.ts";
import { signatures } from "./functions.ts";

const attributes = {
  jwt: { a: "set", empty: null, zero: 0 },
  request: { startTime: new Date("2026-03-08T02:30:15.250Z"), text: "Ünï😀" },
};

const cases: { source: string; value: unknown }[] = [
  // Fallback.
  { source: 'default(jwt.a, "x")', value: "set" },
  { source: 'default(jwt.nope.deeper, "x")', value: "x" },
  { source: "default(1 / jwt.zero, -1)", value: -1 },
  { source: 'default(jwt.empty, "x")', value: null },
  { source: 'default(jwt.nope, default(jwt.nope, "y"))', value: "y" },
  { source: "[1, 0].map(x, default(1 / x, 9))", value: [1, 9] },
  { source: 'coalesce(jwt.nope, jwt.empty, jwt.a, "x")', value: "set" },
  { source: "coalesce(jwt.nope, jwt.empty)", value: null },
  { source: "coalesce(jwt.empty, jwt.nope)", value: null },
  { source: 'coalesce(coalesce(jwt.nope, jwt.empty), "x")', value: "x" },
  // Strings.
  { source: '"Straße".upperAscii()', value: "STRAßE" },
  { source: '"ÄBC".lowerAscii()', value: "Äbc" },
  { source: '" a b ".trim()', value: "a b" },
  { source: '"a-b-c".replace("-", "+")', value: "a+b+c" },
  { source: '"a-b-c".replace("-", "+", 1)', value: "a+b-c" },
  { source: '"a-b".replace("-", "+", 0)', value: "a-b" },
  { source: '"ab".replace("", "-")', value: "-a-b-" },
  { source: '"a,b".split(",")', value: ["a", "b"] },
  { source: '["a", "b"].join("/")', value: "a/b" },
  { source: '"abcd".substring(1, 3)', value: "bc" },
  { source: '"/api/x".stripPrefix("/api")', value: "/x" },
  { source: '"/api/x".stripPrefix("/x")', value: "/api/x" },
  { source: '"x.json".stripSuffix(".json")', value: "x" },
  { source: "size(request.text)", value: 4 },
  { source: '"%s is %d".format(["x", 1])', value: "x is 1" },
  { source: '"/users/42/posts/7".regexReplace("[0-9]+", "N")', value: "/users/N/posts/N" },
  { source: `regexReplace("john@x.org", "(?P<user>\\\\w+)@(.*)", "\${user} at $2, $$")`, value: "john at x.org, $" },
  { source: '"a.b".matches("^a[.]b$")', value: true },
  { source: 'matches("abc", "^b")', value: false },
  { source: 'jwt.a.matches(jwt.a + "$")', value: true },
  // Encoding.
  { source: "json('{\"a\": [1, 2]}').a[1]", value: 2 },
  { source: "json(b'true')", value: true },
  { source: 'toJson({"a": [1, 2.5, null]})', value: '{"a":[1,2.5,null]}' },
  { source: 'base64.encode("hi?>")', value: "aGk/Pg==" },
  { source: 'base64Encode(b"hi")', value: "aGk=" },
  { source: 'string(base64.decode("aGk_Pg"))', value: "hi?>" },
  { source: 'base64Decode("aGk=")', value: "aGk=" },
  { source: 'form.encode({"a b": "c&d=e", "n": 1, "t": true})', value: "a+b=c%26d%3De&n=1&t=true" },
  { source: "form.encode({})", value: "" },
  { source: 'unvalidatedJwtPayload("e30.eyJzdWIiOiJhbm4ifQ.x").sub', value: "ann" },
  { source: 'url.encode("a b/ü")', value: "a%20b%2F%C3%BC" },
  { source: 'url.decode("a%20b")', value: "a b" },
  { source: 'sha256.encode("abc")', value: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
  { source: 'sha1.encode(b"abc")', value: "a9993e364706816aba3e25717850c26c9cd0d89d" },
  { source: 'md5.encode("abc")', value: "900150983cd24fb0d6963f7d28e17f72" },
  { source: "uuid().matches('^[0-9a-f-]{36}$') && uuid() != uuid()", value: true },
  { source: "random() >= 0.0 && random() < 1.0", value: true },
  // Numbers.
  { source: "math.least(3, 1, 2)", value: 1 },
  { source: "min(3, 1, 2)", value: 1 },
  { source: "max([3, 1.5])", value: 3 },
  { source: "math.least([3, 1.5])", value: 1.5 },
  { source: "math.least(jwt.zero)", value: 0 },
  { source: "math.greatest(1, 2u)", value: 2 },
  { source: "[math.ceil(1.2), math.floor(1.8), math.round(-2.5), math.trunc(-1.7)]", value: [2, 1, -3, -1] },
  { source: "[math.abs(-3), math.sign(-3)]", value: [3, -1] },
  { source: "math.isNaN(0.0 / 0.0) && math.isInf(1.0 / 0.0) && !math.isFinite(1.0 / 0.0)", value: true },
  { source: "math.sqrt(9.0)", value: 3 },
  { source: 'double("2.5") + 1.0', value: 3.5 },
  // Addresses.
  { source: 'cidr("10.0.0.0/8").containsIP("10.1.2.3")', value: true },
  { source: 'cidr("10.0.0.0/8").containsIP("11.1.2.3")', value: false },
  { source: 'cidr("10.0.0.0/8").containsIP("::ffff:10.1.2.3")', value: true },
  { source: 'cidr("10.0.0.0/8").containsIP(ip("10.1.2.3"))', value: true },
  { source: 'cidr("0.0.0.0/0").containsIP("::1")', value: false },
  { source: 'cidr("2001:db8::/32").containsIP("2001:db8:1::1")', value: true },
  { source: 'cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")', value: true },
  { source: 'cidr("10.1.0.0/16").containsCIDR("10.0.0.0/8")', value: false },
  { source: 'cidr("10.1.2.3/8").masked()', value: "10.0.0.0/8" },
  { source: '[cidr("10.1.2.3/8").ip(), string(cidr("10.1.2.3/8").prefixLength())]', value: ["10.1.2.3", "8"] },
  { source: 'ip("2001:0DB8:0:0:0:0:0:1")', value: "2001:db8::1" },
  { source: 'ip("1:0:0:2:0:0:0:3")', value: "1:0:0:2::3" },
  { source: 'ip("::")', value: "::" },
  { source: 'ip("::ffff:1.2.3.4").family()', value: 4 },
  {
    source: '[ip("127.9.9.9").isLoopback(), ip("::1").isLoopback(), ip("8.8.8.8").isPrivate()]',
    value: [true, true, false],
  },
  {
    source: '[isIP("::1"), isIP("1.2.3"), isCIDR("1.2.3.4/32"), isCIDR("1.2.3.4/33")]',
    value: [true, false, true, false],
  },
  // Time, whatever the machine's own zone is.
  { source: "request.startTime.getHours()", value: 2 },
  { source: 'request.startTime.getHours("+02:00")', value: 4 },
  { source: 'request.startTime.getHours("America/New_York")', value: 21 },
  { source: 'request.startTime.getDate("America/New_York")', value: 7 },
  { source: "[request.startTime.getDayOfYear(), request.startTime.getDayOfWeek()]", value: [66, 0] },
  { source: "request.startTime.getMilliseconds()", value: 250 },
  { source: "timestamp(1700000000)", value: "2023-11-14T22:13:20Z" },
  { source: "int(timestamp(1700000000))", value: 1700000000 },
  { source: 'timestamp("2026-01-01T00:00:00Z") + duration("90m")', value: "2026-01-01T01:30:00Z" },
  { source: 'duration("1.5s")', value: "1.5s" },
  { source: 'duration("100s")', value: "100s" },
  { source: 'duration("90m").getHours()', value: 1 },
];
for (const { source, value } of cases) {
  test(`evaluates ${source}`, () => {
    assert.deepEqual(compileExpression(source).evaluate(plainAttributes(attributes)), { ok: true, value });
  });
}

const errors = [
  { source: "coalesce(jwt.nope, jwt.nope)", error: /not found/ },
  { source: "default(jwt.nope, jwt.nope2)", error: /nope2/ },
  { source: 'json("{secret")', error: /^json: the text is not valid JSON$/ },
  { source: 'base64.decode("a b")', error: /not base64/ },
  { source: "form.encode([1])", error: /not a map/ },
  { source: 'form.encode({"a": [1]})', error: /neither a string/ },
  { source: 'form.encode("a")', error: /not a map/ },
  { source: 'unvalidatedJwtPayload("a.b")', error: /not a JWT/ },
  { source: 'unvalidatedJwtPayload("a.!.c")', error: /not a JWT/ },
  { source: 'unvalidatedJwtPayload("a.MQ.c")', error: /not an object/ },
  { source: 'unvalidatedJwtPayload("a.e30x.c")', error: /not valid JSON|not an object|no such key/ },
  { source: 'url.decode("%zz")', error: /malformed/ },
  { source: 'ip("10.0.0.256")', error: /not an IP address/ },
  { source: 'ip("fe80::1%eth0")', error: /not an IP address/ },
  { source: 'cidr("10.0.0.0")', error: /not a network/ },
  { source: 'double("abc")', error: /not a number/ },
  { source: 'double("")', error: /not a number/ },
  { source: "math.least([])", error: /empty/ },
  { source: 'math.greatest("a", 1)', error: /not a number/ },
  { source: "math.abs(-9223372036854775808)", error: /overflow/ },
  { source: '[1, "a"].join()', error: /not a string/ },
  { source: 'jwt.a.matches(jwt.a + "(")', error: /regexp/ },
  { source: 'request.startTime.getHours("Mars/Base")', error: /time ?zone/i },
];
for (const { source, error } of errors) {
  test(`gives an error for ${source}`, () => {
    const result = compileExpression(source).evaluate(plainAttributes(attributes));
    assert.match(result.ok ? `the value ${JSON.stringify(result.value)}` : result.error, error);
  });
}

test("the reference lists exactly the functions that load accepts", () => {
  const documented = FUNCTION_GROUPS.flatMap((group) => group.functions.map(({ name }) => name));
  assert.equal(new Set(documented).size, documented.length, "each once");
  assert.deepEqual(documented.toSorted(), [...signatures.keys()].sort());
});

test("the reference shows each function the way it can be called", () => {
  for (const { name, signatures: shown } of FUNCTION_GROUPS.flatMap((group) => group.functions)) {
    const signature = signatures.get(name);
    const isFunction = (signature?.asFunction.size ?? 0) > 0 || signature?.atLeast !== undefined;
    const isMethod = (signature?.asMethod.size ?? 0) > 0;
    assert.equal(
      shown.some((text) => text.startsWith(`${name}(`)),
      isFunction,
      name,
    );
    assert.equal(
      shown.some((text) => !text.startsWith(`${name}(`)),
      isMethod,
      name,
    );
  }
});

test("every documented attribute field lies under its attribute and compiles", () => {
  assert.equal(ATTRIBUTE_NAMES.size, ATTRIBUTES.length);
  for (const { name, fields } of ATTRIBUTES) {
    for (const { path } of fields) {
      assert.ok(path.startsWith(`${name}.`), path);
      if (!path.includes("<")) assert.equal(compileExpression(path).reads(path), true);
    }
  }
});

test("rules do not read numbers of JSON texts that are rounded", () => {
  const rules = [
    "json(request.body).a.n != 7",
    "json(bytes(request.body)).a.n != 7",
    "has(json(request.body).a.n)",
    "default(json(request.body).a.n, 0) != 7",
    "json(request.body).list.exists(n, n == 7) || true",
    "json(request.body).list[1] != 7",
    "7 in json(request.body).list",
    "json(request.body).a == {'n': 7}",
    "toJson(json(request.body)) != ''",
  ];
  const evaluate = (source: string, n: string) =>
    compileExpression(source).evaluate(
      plainAttributes({ request: { body: `{"model":"m","a":{"n":${n}},"list":[1,${n}]}` } }),
    );
  for (const n of ["9007199254740993", "-9007199254740993", "12345678901234567890", "1e400"]) {
    for (const rule of rules) assert.match(JSON.stringify(evaluate(rule, n)), /beyond 2\^53/, `${rule} with ${n}`);
    assert.deepEqual(evaluate("json(request.body).model", n), { ok: true, value: "m" });
    assert.deepEqual(evaluate("size(json(request.body).list)", n), { ok: true, value: 2 });
  }
  for (const n of ["9007199254740991", "0.1", "-5", "1e3"])
    assert.deepEqual(evaluate("json(request.body).a.n != 7", n), { ok: true, value: true });
});
