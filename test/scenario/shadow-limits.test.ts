/**
 * Shadow mode of limits and guards, and permissive authentication in the same report: what is only watched decides as if
 * it were enforced, and nothing of it reaches a client.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { openDryConfig } from "../../src/config/dry-config.ts";
import type { DryRequest } from "../../src/pipeline/dry-run/dry-request.ts";
import { createDryRunner, type DryRunner } from "../../src/pipeline/dry-run/dry-run.ts";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { createSigningKey, keySetOf } from "../support/identity/tokens.ts";
import { startUpstream } from "../support/llm/upstream.ts";
import { closing } from "../support/rate-limit-service/closing.ts";
import { startRateLimitService } from "../support/rate-limit-service/service.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

interface Entry {
  readonly route: string | null;
  readonly policy: string;
  readonly rule: string;
  readonly denied: number;
  readonly subjects: readonly { readonly subject: string; readonly denied: number }[];
}

const jwtAuth = {
  mode: "optional",
  issuer: "https://id.example.com",
  audiences: ["a"],
  jwks: keySetOf(createSigningKey("ES256", "one")),
};

/** Configurations, with 6 to 20 requests each. `SHADOW_CASES=1500 npm test -- test/scenario/shadow` takes about 20,000 requests. */
const CASES = Number(process.env.SHADOW_CASES ?? 25);
const SEED = Number(process.env.FAST_CHECK_SEED ?? 21);

const someLimit = fc.oneof(
  fc.record({
    requests: fc.integer({ min: 1, max: 4 }),
    unit: fc.constantFrom("Seconds", "Minutes"),
    burst: fc.option(fc.integer({ min: 1, max: 2 }), { nil: undefined }),
    key: fc.constantFrom(undefined, "jwt.sub", "mcp.tool.name", "jwt.missing"),
  }),
  fc.record({
    tokens: fc.integer({ min: 1, max: 60 }),
    unit: fc.constantFrom("Seconds", "Minutes"),
    key: fc.constantFrom(undefined, "jwt.sub", "llm.requestModel"),
    reserveOutput: fc.constantFrom(undefined, true),
  }),
);
const someRule = fc
  .tuple(
    fc.constantFrom("require", "allow", "deny"),
    fc.constantFrom('jwt.sub == "alice"', '"admin" in jwt.roles', 'has(mcp.tool) && mcp.tool.name != "write"', "true"),
  )
  .map(([form, rule]) => ({ [form]: rule }));
const limits = fc.array(someLimit, { maxLength: 3 });
const rules = fc.array(someRule, { maxLength: 2 });
const someRequest = fc.record({
  afterMs: fc.constantFrom(0, 0, 0, 300, 1100, 61_000),
  sub: fc.constantFrom("alice", "bob", undefined),
  role: fc.constantFrom("admin", "user"),
  tool: fc.constantFrom("read", "write"),
});
type SomeRequest = typeof someRequest extends fc.Arbitrary<infer Value> ? Value : never;

const BACKENDS = {
  mcp: { mcp: { targets: [{ name: "files", stdio: { cmd: "cat" } }] } },
  ai: { ai: { name: "llm", provider: { openAI: {} }, auth: { key: "k" } } },
};

test("shadow verdicts equal enforced verdicts: limits with rules, over random traffic", async (t) => {
  const clock = fakeClock();
  const seen = { denied: 0, admitted: 0 };
  const shape = fc.record({
    kind: fc.constantFrom("mcp" as const, "ai" as const),
    gateway: limits,
    route: limits,
    rules,
    requests: fc.array(someRequest, { minLength: 6, maxLength: 20 }),
  });
  await fc.assert(
    fc.asyncProperty(shape, async ({ kind, gateway, route, rules, requests }) => {
      const open = (mode: string): { runner: DryRunner; close(): void } => {
        const limited = (entries: readonly object[]): object =>
          entries.length === 0 ? {} : { rateLimit: { local: entries.map((entry) => ({ ...entry, mode })) } };
        const authorization = rules.length === 0 ? {} : { authorization: { mode, rules } };
        const config = {
          gateways: { default: { port: 3000, address: "127.0.0.1", policies: limited(gateway) } },
          routes: [
            { name: "r", backends: [BACKENDS[kind]], policies: { jwtAuth, ...authorization, ...limited(route) } },
          ],
        };
        const dry = openDryConfig([{ file: "c.yaml", text: JSON.stringify(config) }], { environment: {}, clock });
        assert.ok(dry.prepared.ok, JSON.stringify(dry.prepared));
        return {
          runner: createDryRunner(dry.prepared.topology, dry.prepared.settings.redaction, clock),
          close: dry.close,
        };
      };
      const enforced = open("enforce");
      const shadow = open("shadow");
      try {
        for (const one of requests) {
          if (one.afterMs > 0) await clock.advance(one.afterMs);
          const request = requestOf(kind, one);
          const wanted = await enforced.runner.run(request, { keep: true });
          const watched = await shadow.runner.run(request, { keep: true });
          const described = JSON.stringify({ one, wanted: wanted.reason, shadow: watched.shadow });
          assert.equal(watched.outcome, "forwarded", described);
          assert.equal(watched.shadow.length > 0, wanted.outcome === "refused", described);
          assert.deepEqual(watched.limits, [], described);
          seen[wanted.outcome === "refused" ? "denied" : "admitted"] += 1;
        }
      } finally {
        enforced.close();
        shadow.close();
      }
    }),
    { numRuns: CASES, seed: SEED },
  );
  t.diagnostic(`${seen.denied} denied, ${seen.admitted} admitted, ${CASES} configurations`);
  assert.ok(seen.denied > 20 && seen.admitted > 20, JSON.stringify(seen));
});

function requestOf(kind: "mcp" | "ai", { sub, role, tool }: SomeRequest): DryRequest {
  return {
    method: "POST",
    url: kind === "mcp" ? "/mcp" : "/v1/chat/completions",
    given: sub === undefined ? undefined : { claims: { sub, roles: [role] } },
    ...(kind === "mcp" ? { mcp: { tool } } : { model: tool }),
  };
}

async function shadowReport(adminUrl: string): Promise<readonly Entry[]> {
  return ((await (await fetch(`${adminUrl}/debug/shadow`)).json()) as { rules: Entry[] }).rules;
}

test("a limit in shadow mode refuses nothing and adds no header, beside one that is enforced", async (t) => {
  const backend = await backendFor(t, (_, response) => {
    response.setHeader("x-ratelimit-limit", "of the backend");
    response.end("ok");
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - { name: watched, matches: [{ path: { pathPrefix: /watched } }], backends: [{ host: "${backend.host}" }], policies: { rateLimit: { local: [{ requests: 1, unit: Hours, mode: shadow }] } } }
  - { name: both, matches: [{ path: { pathPrefix: /both } }], backends: [{ host: "${backend.host}" }], policies: { rateLimit: { local: [{ requests: 3, unit: Hours }, { requests: 2, unit: Hours, key: 'request.headers["x-user"]', mode: shadow }] } } }
`,
  );
  for (let i = 0; i < 3; i++) {
    const response = await fetch(`${gateway.url()}/watched`);
    assert.deepEqual([response.status, response.headers.get("x-ratelimit-limit")], [200, "of the backend"]);
    await response.text();
  }
  const statuses: (number | string | null)[] = [];
  for (let i = 0; i < 4; i++) {
    const response = await fetch(`${gateway.url()}/both`, { headers: { "x-user": "u" } });
    statuses.push(response.status, response.headers.get("x-ratelimit-limit"));
    await response.text();
  }
  assert.deepEqual(statuses, [200, "3", 200, "3", 200, "3", 429, "3"]);
  const entries = await shadowReport(gateway.adminUrl);
  assert.deepEqual(
    entries.map(({ route, policy, rule, denied }) => [route, policy, rule, denied]),
    [
      ["watched", "rateLimit", "1 request per hour", 2],
      // The fourth was refused by the enforced limit: it is not asked of the other.
      ["both", "rateLimit", '2 requests per hour for each request.headers["x-user"]', 1],
    ],
  );
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_shadow_denied_total\{route="watched",policy="rateLimit"\} 2/);
  assert.doesNotMatch(metrics, /gateway_rate_limit_refused_total\{owner="route watched",type="requests"\} [1-9]/);
});

test("a service in shadow mode is asked, no request waits for it, and what it refuses is reported", async (t) => {
  const onEnd = closing(t);
  const service = await startRateLimitService([{ entry: "user", limit: 2, unit: "HOUR" }]);
  onEnd(service.close);
  const backend = await backendFor(t);
  const config = (host: string, name: string): string =>
    `{ name: ${name}, matches: [{ path: { pathPrefix: /${name} } }], backends: [{ host: "${backend.host}" }], policies: { rateLimit: { global: { mode: shadow, host: "${host}", domain: d, timeout: 30s, descriptors: [{ entries: [{ key: user, value: '"u"' }] }] } } } }`;
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - ${config(service.host, "up")}
  - ${config("127.0.0.1:1", "down")}
`,
  );
  for (let i = 0; i < 4; i++) assert.equal((await fetch(`${gateway.url()}/up`)).status, 200);
  assert.equal((await fetch(`${gateway.url()}/down`)).status, 200);
  await eventually("the report has both", async () => {
    const entries = await shadowReport(gateway.adminUrl);
    const count = (name: string): number => entries.find(({ route }) => route === name)?.denied ?? 0;
    return count("up") === 2 && count("down") === 1;
  });
});

test("permissive authentication is in the report, by the reason", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - { name: jwt, matches: [{ path: { pathPrefix: /jwt } }], backends: [{ host: "${backend.host}" }], policies: { jwtAuth: ${JSON.stringify({ ...jwtAuth, mode: "permissive" })} } }
  - { name: key, matches: [{ path: { pathPrefix: /key } }], backends: [{ host: "${backend.host}" }], policies: { apiKey: { mode: permissive, keys: [{ key: a-key-of-a-client }] } } }
  - { name: basic, matches: [{ path: { pathPrefix: /basic } }], backends: [{ host: "${backend.host}" }], policies: { basicAuth: { mode: permissive, htpasswd: "alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=" } } }
`,
  );
  for (const path of ["/jwt", "/key", "/basic"])
    for (const headers of [{}, { authorization: path === "/basic" ? "Basic YTpi" : "Bearer wrong" }])
      assert.equal((await fetch(gateway.url() + path, { headers })).status, 200);
  assert.equal((await fetch(`${gateway.url()}/key`, { headers: { "x-api-key": "a-key-of-a-client" } })).status, 200);
  const entries = await shadowReport(gateway.adminUrl);
  assert.deepEqual(entries.map(({ policy, rule, denied }) => `${policy}: ${rule}: ${denied}`).sort(), [
    "apiKey: no API key was sent: 1",
    "apiKey: the API key is not one of the configured keys: 1",
    "basicAuth: no user name and password were sent: 1",
    "basicAuth: the user name or the password is wrong: 1",
    "jwtAuth: no bearer token was sent: 1",
    "jwtAuth: the token is malformed: 1",
  ]);
});

test("guards in shadow mode change and reject nothing, in both directions and in streams", async (t) => {
  const upstream = await startUpstream();
  t.after(() => upstream.close());
  const backend = `backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "${upstream.host}" } }]`;
  const guard = (rule: string, action: string): string =>
    `{ mode: shadow, regex: { action: ${action}, rules: [${rule}] } }`;
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 }, plain: { port: 0, address: 127.0.0.1 } }
routes:
  - name: watched
    gateways: default
    ${backend}
    policies:
      ai:
        promptGuard:
          request: [${guard("{ builtin: email }", "mask")}, ${guard('{ pattern: "(?i)bomb" }', "reject")}]
          response: [${guard("{ pattern: friend }", "reject")}]
  - { name: plain, gateways: plain, ${backend} }
`,
  );
  const ask = async (listener: string, content: string, stream: boolean): Promise<string> => {
    const response = await fetch(`${gateway.url(listener)}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "m", stream, messages: [{ role: "user", content }] }),
    });
    assert.equal(response.status, 200);
    return response.text();
  };
  for (const stream of [false, true])
    assert.equal(
      await ask("default", "I am me@example.com, no BOMB", stream),
      await ask("plain", "I am me@example.com, no BOMB", stream),
    );
  const entries = await shadowReport(gateway.adminUrl);
  assert.deepEqual(entries.map(({ route, policy, rule, denied }) => `${route} ${policy} ${rule} ${denied}`).sort(), [
    "watched ai promptGuard.request: (?i)bomb 2",
    "watched ai promptGuard.request: email 2",
    "watched ai promptGuard.response: friend 2",
  ]);
  assert.doesNotMatch(JSON.stringify(entries), /me@example/);
});
