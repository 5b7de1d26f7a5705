/**
 * Shadow mode: what is only watched denies exactly what would be denied, and nothing of it reaches a client.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { runGwctl } from "../../src/cli/gwctl.ts";
import { openDryConfig } from "../../src/config/dry-config.ts";
import { createDryRunner, type DryRunner } from "../../src/pipeline/dry-run/dry-run.ts";
import { createSigningKey, keySetOf } from "../support/identity/tokens.ts";
import { randomFrom } from "../support/random.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

/** Sets of rules, with eight requests each. `SHADOW_CASES=2500 npm test -- test/scenario/shadow` takes 20,000 requests. */
const CASES = Number(process.env.SHADOW_CASES ?? 60);
const SEED = Number(process.env.FAST_CHECK_SEED ?? 7);

const RULES = [
  '"admin" in jwt.roles',
  'jwt.sub == "alice"',
  'request.method == "GET"',
  "jwt.missing == 1",
  'request.headers["x-a"] == "1"',
  'mcp.tool.name == "read"',
  'mcp.tool.arguments.path == "/a"',
  'has(mcp.tool) && mcp.tool.name != "write"',
  "1",
];

test("shadow verdicts equal enforced verdicts, over random rules and requests", async (t) => {
  const random = randomFrom(SEED);
  const pick = <Item>(list: readonly Item[]): Item => list[Math.floor(random() * list.length)] as Item;
  /** Conditions, alone or put together. */
  const someRule = (depth: number): string => {
    if (depth === 0 || random() < 0.5) return pick(RULES);
    if (random() < 0.2) return `!(${someRule(depth - 1)})`;
    return `(${someRule(depth - 1)}) ${pick(["&&", "||"])} (${someRule(depth - 1)})`;
  };
  const opened: { close(): void }[] = [];
  t.after(() => {
    for (const { close } of opened) close();
  });
  const runnerOf = (policies: object): DryRunner => {
    const config = {
      gateways: { default: { port: 3000, address: "127.0.0.1" } },
      routes: [{ name: "r", backends: [{ mcp: { targets: [{ name: "files", stdio: { cmd: "cat" } }] } }], policies }],
    };
    const dry = openDryConfig([{ file: "c.yaml", text: JSON.stringify(config) }], {
      environment: {},
      clock: systemClock,
    });
    opened.push(dry);
    assert.ok(dry.prepared.ok, JSON.stringify(dry.prepared));
    return createDryRunner(dry.prepared.topology, dry.prepared.settings.redaction, systemClock);
  };
  const jwtAuth = {
    mode: "optional",
    issuer: "https://id.example.com",
    audiences: ["a"],
    jwks: keySetOf(createSigningKey("ES256", "one")),
  };
  let denied = 0;
  let admitted = 0;
  for (let i = 0; i < CASES; i++) {
    const kind = pick(["authorization", "mcpAuthorization"]);
    const rules = Array.from({ length: 1 + Math.floor(random() * 3) }, () => {
      const rule = someRule(2);
      const form = pick(["plain", "allow", "deny", "require"]);
      return form === "plain" ? rule : { [form]: rule };
    });
    const enforced = runnerOf({ jwtAuth, [kind]: { rules } });
    const shadow = runnerOf({ jwtAuth, [kind]: { rules, mode: "shadow" } });
    for (let j = 0; j < 8; j++) {
      const request = {
        method: "POST",
        url: "/mcp",
        headers: random() < 0.4 ? { "x-a": pick(["1", "2"]) } : {},
        given:
          random() < 0.7 ? { claims: { sub: pick(["alice", "bob"]), roles: pick([["admin"], ["user"]]) } } : undefined,
        mcp: pick([
          { tool: "read", arguments: { path: pick(["/a", "/b"]) } },
          { tool: "write" },
          { prompt: "greet" },
          { resource: "file:///x" },
          { method: "tools/list" },
        ]),
      };
      const wanted = await enforced.run(request);
      const watched = await shadow.run(request);
      const described = JSON.stringify({ kind, rules, request, wanted: wanted.reason, shadow: watched.shadow });
      assert.equal(watched.outcome, "forwarded", described);
      assert.equal(watched.shadow.length > 0, wanted.outcome === "refused", described);
      if (wanted.outcome === "refused")
        assert.ok(
          watched.shadow.some(({ detail }) => detail === wanted.reason?.detail),
          described,
        );
      if (wanted.outcome === "refused") denied += 1;
      else admitted += 1;
    }
    for (const { close } of opened.splice(0)) close();
  }
  t.diagnostic(`${denied} denied, ${admitted} admitted, ${CASES} sets of rules`);
  assert.ok(denied > 20 && admitted > 20, `${denied} ${admitted}`);
});

test("a rule in shadow mode denies nobody, and the report says whom it would deny", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: api
    backends: [{ host: "${backend.host}" }]
    policies:
      apiKey: { keys: [{ key: key-of-alice-12345, metadata: { user_id: alice } }, { key: key-of-bob-12345678, metadata: { user_id: bob } }] }
      authorization: { mode: shadow, rules: ['apiKey.user_id == "alise"'] }
`,
  );
  for (const key of ["key-of-alice-12345", "key-of-bob-12345678", "key-of-bob-12345678"]) {
    const response = await fetch(`${gateway.url()}/x`, { headers: { "x-api-key": key } });
    await response.arrayBuffer();
    assert.equal(response.status, 200);
  }
  await gateway.logged("shadow=authorization");
  const report = (await (await fetch(`${gateway.adminUrl}/debug/shadow`)).json()) as {
    rules: { rule: string; denied: number; subjects: unknown; examples: unknown[] }[];
  };
  assert.equal(report.rules.length, 1, JSON.stringify(report));
  const [entry] = report.rules;
  assert.deepEqual([entry?.rule, entry?.denied, entry?.examples.length], ['apiKey.user_id == "alise"', 3, 3]);
  assert.match(JSON.stringify(entry?.subjects), /bob","denied":2.*alice","denied":1/);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_shadow_denied_total\{route="api",policy="authorization"\} 3/);
  let out = "";
  const say = (text: string): void => {
    out += text;
  };
  const terminal = {
    out: say,
    err: say,
    isInteractive: false,
    hasColor: false,
    environment: {},
    clock: systemClock,
    readStdin: () => "",
  };
  assert.equal(await runGwctl(["shadow", "report", "-p", new URL(gateway.adminUrl).port], terminal), 0);
  assert.match(out, /api {4}authorization {2}3 {7}.*bob \(2\), .*alice \(1\)/);

  // The same of one request that was made, and of one that is only thought of.
  const port = new URL(gateway.adminUrl).port;
  const example = entry?.examples[0] as { id: string } | undefined;
  assert.equal(await runGwctl(["explain", example?.id ?? "", "-p", port], terminal), 0);
  assert.match(out, /Not enforced \(shadow mode\): `authorization` would reject it: the rule .*alise.* is "alice"/);
  out = "";
  const asked = ["what-if", "GET", `${gateway.url()}/x`, "-H", "x-api-key: key-of-bob-12345678", "-p", port];
  assert.equal(await runGwctl(asked, terminal), 0);
  assert.match(out, /→ 200 forwarded\n[\s\S]*shadow {4}authorization would reject it: the rule .*alise.* is "bob"/);
});
