/**
 * `gwctl what-if` and `POST /debug/what-if`: what a running gateway would do with a request, without doing it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { runGwctl } from "../../src/cli/gwctl.ts";
import { createSigningKey, signToken } from "../support/identity/tokens.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const ISSUER = "https://id.example.com";

test("what-if tells route, verdicts, limits and backend; nothing is sent, charged or fetched", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: api
    backends: [{ host: "${backend.host}", weight: 3 }, { host: "${backend.host}", weight: 1 }]
    policies:
      jwtAuth: { issuer: "${ISSUER}", audiences: [gateway], jwks: { url: "http://127.0.0.1:9/keys" } }
      authorization: { rules: ['"admin" in jwt.roles'] }
      rateLimit: { local: [{ requests: 2, unit: Hours, key: jwt.sub }] }
      requestMirror: [{ host: "${backend.host}" }]
      requestHeaderModifier: { set: { x-added: "yes" } }
`,
  );
  const ask = (question: object): Promise<Response> =>
    fetch(`${gateway.adminUrl}/debug/what-if`, { method: "POST", body: JSON.stringify(question) });
  const admin = { sub: "alice", roles: ["admin"] };
  for (let i = 0; i < 4; i++) {
    const report = (await (await ask({ request: { url: "/x" }, claims: admin })).json()) as Record<string, unknown>;
    assert.deepEqual(
      [report.status, report.outcome, report.route, report.limits],
      [200, "forwarded", "api", [{ limit: "2", remaining: 1, resetSeconds: 3600 }]],
    );
    assert.equal((report.request as { headers: Record<string, string> }).headers["x-added"], "yes");
    assert.deepEqual(
      (report.backends as { weight: number; chosen: boolean }[]).map(({ weight, chosen }) => [weight, chosen]),
      [
        [3, true],
        [1, false],
      ],
    );
  }
  const third = (await (await ask({ request: { url: "/x" }, claims: admin, repeat: 3 })).json()) as { status: number };
  assert.equal(third.status, 429);
  assert.equal(backend.received.length, 0);

  // A token is judged in all but its signature, and is never shown.
  const key = createSigningKey("ES256", "nobody-knows-it");
  const claims = { iss: ISSUER, aud: "other", exp: Math.floor(Date.now() / 1000) + 60, ...admin };
  const token = signToken({ key, claims });
  const wrong = await (await ask({ request: { url: "/x" }, token })).text();
  assert.match(wrong, /"invalid_token"[\s\S]*audience is \[.*other/);
  const right = await (
    await ask({ request: { url: "/x" }, token: signToken({ key, claims: { ...claims, aud: "gateway" } }) })
  ).text();
  assert.match(right, /"forwarded"/);
  assert.ok(!wrong.includes(token) && !right.includes(token));

  for (const bad of [
    {},
    { request: { url: "ftp://x" } },
    { request: { url: "/" }, claims: admin, token },
    { request: { url: "/" }, repeat: 1e9 },
  ])
    assert.equal((await ask(bad)).status, 400, JSON.stringify(bad));

  // Copies for the mirror would have come by now.
  assert.equal(backend.received.length, 0);

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
    readStdin: () => token,
  };
  const port = new URL(gateway.adminUrl).port;
  const args = ["what-if", "GET", "http://localhost/x", "--claims", '{"sub":"bob","roles":["user"]}', "-p", port];
  assert.equal(await runGwctl(args, terminal), 0, out);
  assert.match(out, /^GET http:\/\/localhost\/x → 403 refused\n\nlistener {2}default\nroute {5}api\n/);
  assert.match(
    out,
    /route {2}authorization {2}refused {2}the rule `"admin" in jwt\.roles` is not true: jwt\.roles is \["user"\]/,
  );
  out = "";
  assert.equal(await runGwctl(["what-if", "GET", "/x", "--claims", "nonsense", "-p", port], terminal), 2);
  assert.match(out, /invalid --claims: expected a JSON object/);
});
