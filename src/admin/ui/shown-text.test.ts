import assert from "node:assert/strict";
import { test } from "node:test";
import { createRedaction } from "../../record/trace/redact.ts";
import { restoreSecrets, shownText } from "./shown-text.ts";

const redaction = createRedaction(["x-secret"]);

const cases = [
  {
    name: "the value of a sensitive header",
    yaml: "routes:\n  - policies:\n      requestHeaderModifier: { set: { authorization: 'Bearer abc', x-plain: shown } }\n",
    hidden: ["abc"],
    shown: ["x-plain: shown"],
  },
  {
    name: "the value of a header that the configuration calls sensitive",
    yaml: "routes:\n  - policies:\n      requestHeaderModifier:\n        set:\n          X-Secret: abc # stays\n",
    hidden: ["abc"],
    shown: ["# stays"],
  },
  {
    name: "a field that its schema calls secret",
    yaml: "routes:\n  - backends:\n      - host: 127.0.0.1:1\n        policies:\n          backendAuth: { key: abc }\n",
    hidden: ["abc"],
    shown: ["host: 127.0.0.1:1"],
  },
  {
    name: "a secret over several lines",
    yaml: "routes:\n  - policies:\n      requestHeaderModifier:\n        set:\n          cookie: |\n            abc\n            def\n    name: after\n",
    hidden: ["abc", "def"],
    shown: ["name: after"],
  },
  {
    name: "a default inside a reference",
    yaml: "routes:\n  - policies:\n      requestHeaderModifier: { set: { authorization: '${TOKEN:-abc}' } }\n",
    hidden: ["abc"],
    shown: [],
  },
  {
    name: "what follows a reference",
    yaml: "routes:\n  - policies:\n      backendAuth: { key: '${PREFIX}abc' }\n",
    hidden: ["abc"],
    shown: [],
  },
  {
    name: "variables of a child process",
    yaml: "mcp:\n  targets:\n    - name: a\n      stdio: { cmd: node, env: { SITE: abc, HOME: ${HOME} } }\n",
    hidden: ["abc"],
    shown: ["cmd: node", "HOME: ${HOME}"],
  },
  {
    name: "the value of a field that is in no schema",
    yaml: "mcp:\n  policies:\n    mcpAuthentication: { clientSecrt: abc, clientId: app }\n",
    hidden: ["abc"],
    shown: ["clientId: app"],
  },
  ...Object.getOwnPropertyNames(Object.prototype).map((name) => ({
    name: `what a field named ${name} holds`,
    yaml: `mcp:\n  policies:\n    mcpAuthentication: { ${name}: abc, clientId: app }\n`,
    hidden: ["abc"],
    shown: ["clientId: app"],
  })),
  {
    name: "a value that YAML takes for a part of the name",
    yaml: "routes:\n  - policies: { apiKey: { keys: [{ key:abc }, { key=def }] } }\nservices: { shop:80: '127.0.0.1:1' }\n",
    hidden: ["abc", "def"],
    shown: ["{ key:<redacted:0> }", "{ shop:80: '127.0.0.1:1' }"],
  },
  {
    name: "an alias and its value",
    yaml: "routes:\n  - name: &n abc\n    policies: { backendAuth: { key: *n }, apiKey: { keys: [{ key: *def }] } }\n",
    hidden: ["abc", "*def"],
    shown: ["key: *n"],
  },
  {
    name: "the values of a URL's parameters, and its user information",
    yaml: "mcp:\n  targets:\n    - { name: a, mcp: { url: 'http://me:abc@host.test/mcp?k=def&l=${L}#x' } }\n",
    hidden: ["abc", "def"],
    shown: ["@host.test/mcp?k=<redacted:1>&l=${L}#x"],
  },
  {
    name: "a value beside the name of a sensitive header",
    yaml: "routes:\n  - matches: [{ headers: [{ name: X-Secret, exact: abc }, { name: x-plain, exact: shown }] }]\n",
    hidden: ["abc"],
    shown: ["exact: shown"],
  },
  {
    name: "a sensitive header in a document of another kind, and only that",
    yaml: "kind: HTTPRoute\nspec:\n  rules: [{ filters: [{ set: [{ name: cookie, value: abc }] }], path: /shown }]\n",
    hidden: ["abc"],
    shown: ["path: /shown"],
  },
  {
    name: "a secret in the middle of a line, and a block of them, in a text that does not parse",
    yaml: "routes: [\n  - { host: shown, backendAuth: { key: abc } }\nhtpasswd: |\n  bob:def\n\n  eve:ghi\nname: after\n",
    hidden: ["abc", "def", "ghi"],
    shown: ["host: shown", "name: after"],
  },
  {
    name: "whatever sounds like a secret in a text that does not parse",
    yaml: "routes: [\nclientSecret: abc\nname: shown\n",
    hidden: ["abc"],
    shown: ["name: shown"],
  },
];
for (const { name, yaml, hidden, shown } of cases)
  test(`hides ${name}, and restores it exactly`, () => {
    const result = shownText(yaml, redaction);
    for (const text of hidden) assert.ok(!result.text.includes(text), result.text);
    for (const text of shown) assert.ok(result.text.includes(text), result.text);
    assert.equal(restoreSecrets(result.text, result.secrets).text, yaml);
  });

test("a reference to a variable stays readable", () => {
  const yaml =
    "routes:\n  - policies:\n      requestHeaderModifier: { set: { authorization: 'Bearer ${TOKEN}', cookie: ${JAR} } }\n";
  const { text } = shownText(yaml, redaction);
  assert.ok(text.includes("cookie: ${JAR}"));
});

test("an unknown marker is reported", () => {
  assert.deepEqual(restoreSecrets("a: <redacted:7>", ["x"]).unknown, [7]);
});

test("lines of the restored text are mapped to lines of the shown text", () => {
  const { lineOf } = restoreSecrets("a\nb: <redacted:0>\nc", ["|\n  1\n  2"]);
  assert.deepEqual([1, 2, 3, 4, 5].map(lineOf), [1, 2, 2, 2, 3]);
});

test("gateways, routes, sections and documents are found by name", () => {
  const yaml =
    "gateways:\n  default:\n    port: 1\nroutes:\n  - name: a\n    matches: []\n  - {}\nmcp:\n  targets: []\n---\nkind: GatewayPolicy\nmetadata: { name: p }\n";
  const { places } = shownText(yaml, redaction);
  assert.deepEqual(places["listener default"], { line: 2, endLine: 3 });
  assert.equal(places["route a"]?.line, 5);
  assert.equal(places["route route1"]?.line, 7);
  assert.equal(places["route mcp"]?.line, 8);
  assert.equal(places["GatewayPolicy p"]?.line, 11);
});

test("policies are found by their owner, on the lines of the shown text", () => {
  const yaml = `gateways:
  default:
    port: 1
    policies: { cors: { allowOrigins: ["*"] } }
routes:
  - name: a
    policies:
      requestHeaderModifier:
        set:
          cookie: |
            abc
            def
      timeout: { requestTimeout: 1s }
    backends:
      - host: 127.0.0.1:1
      - ai:
          models:
            - name: fast
              policies:
                authorization:
                  rules: ["true"]
        policies: { retry: { attempts: 2 } }
mcp:
  targets: []
  policies: { csrf: {} }
---
kind: GatewayPolicy
metadata: { name: p }
spec:
  rateLimit: {}
`;
  const { text, places } = shownText(yaml, redaction);
  const lines = text.split("\n");
  const written = (name: string): string => lines[(places[name]?.line ?? 0) - 1]?.trim() ?? "";
  assert.match(written("listener default policy cors"), /^policies: \{ cors/);
  assert.match(written("route a policy timeout"), /^timeout:/);
  assert.match(written("route a backend 1 policy retry"), /^policies: \{ retry/);
  assert.match(written("route a of model fast policy authorization"), /^authorization:/);
  assert.match(written("route mcp policy csrf"), /^policies: \{ csrf/);
  assert.match(written("GatewayPolicy p policy rateLimit"), /^rateLimit:/);
  assert.match(lines[(places["route a of model fast policy authorization"]?.endLine ?? 0) - 1] ?? "", /rules/);
});
