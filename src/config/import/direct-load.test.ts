import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { loadConfig, loadForeign } from "../load/load.ts";

const HELLO = "routes: [{ name: hello, policies: { directResponse: { status: 200, body: hi } } }]";

function load(text: string, environment: Record<string, string> = {}) {
  const sources = [{ file: "c.yaml", text }];
  return finish(loadForeign(finish(loadConfig(sources, environment)), sources, environment));
}

function problemsOf(text: string, environment: Record<string, string> = {}): string[] {
  const loaded = load(text, environment);
  return loaded.ok ? [] : loaded.problems.map((problem) => problem.toLine());
}

test("binds are loaded as gateways and routes, with warnings that name our fields", () => {
  const loaded = load(`# comment
frontendPolicies: { accessLog: { filter: "response.code >= 400" } }
binds:
  - port: 3000
    listeners: [{ hostname: a.example, ${HELLO} }]
`);
  assert.ok(loaded.ok);
  assert.deepEqual(
    loaded.config.gateways.map(({ name, port }) => [name, port]),
    [["default", 3000]],
  );
  assert.equal(loaded.config.process.logging?.access?.filter, "response.code >= 400");
  assert.deepEqual(
    loaded.warnings.map((warning) => warning.toLine()),
    [
      "c.yaml:2:1: a configuration of agentgateway, converted when it is loaded; `gwctl import` writes the result to a file",
      "c.yaml:3:1: binds: is called `gateways` and `routes` here",
      "c.yaml:2:1: frontendPolicies: is called `config.telemetry`, `config.logging`, and `authorization` of gateways here",
    ],
  );
});

test("rules keep agentgateway's meaning, and differences are warnings", () => {
  const loaded = load(`
binds:
  - port: 3000
    listeners:
      - routes:
          - backends: [{ host: "localhost:1" }]
            policies: { authorization: { rules: ["jwt.a == 1", "jwt.b == 2"] }, retry: { attempts: 3 } }
`);
  assert.ok(loaded.ok);
  const policies = loaded.config.routes[0]?.policies ?? [];
  const rules = policies.find(({ kind }) => kind === "authorization")?.config;
  assert.deepEqual(rules, { rules: [{ allow: "jwt.a == 1" }, { allow: "jwt.b == 2" }] });
  assert.ok(loaded.warnings.some(({ message }) => /attempts: counts attempts after the first here/.test(message)));
});

test("variables are replaced once: a dollar sign in a value is no reference", () => {
  const loaded = load(
    `
binds:
  - port: 3000
    listeners: [{ routes: [{ backends: [{ host: "localhost:1" }], policies: { backendAuth: { key: $KEY } } }] }]
`,
    { KEY: "a$HOME-${HOME}", HOME: "/root" },
  );
  assert.ok(loaded.ok);
  const [policy] = loaded.config.routes[0]?.policies ?? [];
  assert.deepEqual(policy?.config, { key: "a$HOME-${HOME}" });
  assert.deepEqual(problemsOf("binds: [{ port: $PORT, listeners: [] }]"), [
    "c.yaml:1:1: gateways.default.port: environment variable not found: PORT. Set it, or write ${PORT:-default}",
  ]);
});

const refused: [name: string, text: string, said: RegExp][] = [
  [
    "a setting without a counterpart",
    `config: { spiffe: { endpoint: "unix:///x" } }\nbinds: [{ port: 3000, listeners: [{ ${HELLO} }] }]`,
    /config\.spiffe: unknown field/,
  ],
  [
    "a left-out field",
    `frontendPolicies: { tcp: { keepalives: {} } }\nbinds: [{ port: 3000, listeners: [{ ${HELLO} }] }]`,
    /agentgateway's setting has no counterpart: frontendPolicies\.tcp/,
  ],
  [
    "a protection whose target is unknown",
    `policies: [{ name: p, target: { route: x }, policy: { jwtAuth: {} } }]\nbinds: [{ port: 3000, listeners: [{ ${HELLO} }] }]`,
    /a protection would be missing: gateways\.default: the jwtAuth of policies\[0\]/,
  ],
];
for (const [name, text, said] of refused)
  test(`is not loaded: ${name}`, () => {
    const problems = problemsOf(text);
    assert.match(problems[0] ?? "", /cannot be loaded: convert it with `gwctl import <file>`/);
    assert.ok(
      problems.some((line) => said.test(line)),
      problems.join("\n"),
    );
  });

test("a configuration of this gateway with a field of agentgateway is not converted", () => {
  const text = `
gateways: { default: { port: 3000 } }
routes:
  - backends: [{ host: "localhost:1" }]
    policies: { authorization: { rules: ["jwt.a == 1", "jwt.b == 2"] }, localRateLimit: [{ maxTokens: 5, tokensPerFill: 5, fillInterval: 1s }] }
`;
  assert.match(problemsOf(text).join("\n"), /localRateLimit: unknown field/);
  assert.equal(load(`# yaml-language-server: $schema=https://agentgateway.dev/schema/config${text}`).ok, true);
});

test("settings of agentgateway in the common layout are converted if that changes no rule", () => {
  const limit = "localRateLimit: [{ maxTokens: 5, tokensPerFill: 5, fillInterval: 1s }]";
  const text = (rules: string) => `
gateways: { default: { port: 3000 } }
routes: [{ backends: [{ host: "localhost:1" }], policies: { authorization: { rules: [${rules}] }, ${limit} } }]
`;
  const loaded = load(text('"has(jwt.sub)"'));
  assert.ok(loaded.ok);
  assert.match(
    loaded.warnings.map((warning) => warning.toLine()).join("\n"),
    /c\.yaml:3:\d+: routes\[0\]\.policies\.localRateLimit: is called `rateLimit\.local` here/,
  );
  assert.match(problemsOf(text('"has(jwt.sub)", "has(jwt.aud)"')).join("\n"), /localRateLimit: unknown field/);
  assert.equal(
    load("config: { mcp: { sessionTtl: 1m } }\nmcp: { targets: [{ name: a, stdio: { cmd: x } }] }\n").ok,
    true,
  );
  assert.match(problemsOf("config: { mcp: { other: 1m } }\n").join("\n"), /config\.mcp: unknown field/);
});

test("messages do not quote the values of variables", () => {
  const text = `binds: [{ port: 3000, listeners: [{ routes: [{ matches: [{ path: { exact: $BAD } }], ${HELLO.slice(9, -1)} ] }] }]`;
  const problems = problemsOf(text, { BAD: "planted-secret" }).join("\n");
  assert.ok(!problems.includes("planted-secret"), problems);
});
