/**
 * `gateway --test`: tests of a configuration as they run in a pipeline.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { type Exit, startGatewayProcess } from "../support/gateway-process.ts";

const run = (t: TestContext, stdin: string, flags: readonly string[] = []): Promise<Exit> =>
  startGatewayProcess(t, ["--test", ...flags, "-f", "-"], { stdin }).exited;

const example = readFileSync("examples/tests/config.yaml", "utf8");

test("the example's tests pass, and nothing listens", async (t) => {
  const exit = await run(t, example);
  assert.equal(exit.code, 0, exit.stdout + exit.stderr);
  assert.match(exit.stdout, /^ok {4}users see echo only\n/);
  assert.match(exit.stdout, /4 of 4 tests passed\n$/);
});

test("a typo in a role locks administrators out, and the test says why and where", async (t) => {
  const typo = example.replace(`'"admin" in jwt.roles'`, `'"admins" in jwt.roles'`);
  const exit = await run(t, typo);
  assert.equal(exit.code, 1);
  assert.match(
    exit.stdout,
    /FAIL {2}administrators see everything\n {6}<stdin>:\d+:\d+: .*expected tool "printEnv" to be visible, it is hidden \(authorization_denied: .*"admins" in jwt\.roles/,
  );
  assert.match(exit.stdout, /3 of 4 tests passed\n$/);
  const github = await run(t, typo, ["--format", "github"]);
  assert.match(github.stdout, /^::error file=<stdin>,line=\d+,col=\d+::/);
  const json = JSON.parse((await run(t, typo, ["--format", "json"])).stdout) as {
    failed: number;
    tests: { ok: boolean; report: { route: string; policies: { policy: string }[] } }[];
  };
  assert.deepEqual([json.failed, json.tests.map(({ ok }) => ok)], [1, [true, false, true, true]]);
  assert.equal(json.tests[0]?.report.route, "tools");
});

const ONE = 'gateways: { default: { port: 3000 } }\nroutes: [{ backends: [{ host: "127.0.0.1:9" }] }]\n';

test("no tests, wrong tests and wrong configurations are failures", async (t) => {
  const none = await run(t, ONE);
  assert.deepEqual([none.code, none.stderr], [1, "the configuration has no tests\n"]);
  const wrong = await run(
    t,
    `${ONE}---\ntests: [{ name: a, request: { url: /, metod: GET }, expect: { status: 200 } }]\n`,
  );
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /<stdin>:4:\d+: tests\[0\]\.request\.metod: unknown field, did you mean "method"\?/);
  const empty = await run(t, `${ONE}---\ntests: [{ name: a, request: { url: / }, expect: {} }]\n`);
  assert.match(empty.stderr, /expected at least one field/);
  const invalid = await run(t, "routes: [{ backend: [] }]\ntests: []\n");
  assert.equal(invalid.code, 1);
  assert.match(invalid.stderr, /routes\[0\]\.backend: unknown field/);
});

test("a request that the edge rejects and one that no listener takes", async (t) => {
  const two = `gateways: { a: { port: 3000 }, b: { port: 4000 } }
routes: [{ name: r, gateways: [a, b], backends: [{ host: "127.0.0.1:9" }] }]
tests:
  - { name: dots, request: { url: "http://x:4000/a/../b" }, expect: { status: 400, reason: dot segment, route: null } }
  - { name: lost, request: { url: "http://x:5000/" }, expect: { status: 200 } }
  - { name: named, request: { url: /, listener: b }, expect: { status: 200, outcome: forwarded, route: r } }
`;
  const exit = await run(t, two);
  assert.equal(exit.code, 1);
  assert.match(
    exit.stdout,
    /ok {4}dots\nFAIL {2}lost\n.*chooses no listener.*a \(port 3000\), b \(port 4000\)\nok {4}named\n/,
  );
});
