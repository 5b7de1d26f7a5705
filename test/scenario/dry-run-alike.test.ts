/**
 * A dry run says what a real gateway does: random rules and requests, from a seed, through both. The dry run gets the
 * claims that the real client's token carries.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { openDryConfig } from "../../src/config/dry-config.ts";
import { createDryRunner } from "../../src/pipeline/dry-run/dry-run.ts";
import { eventually } from "../support/eventually.ts";
import { createSigningKey, keySetOf, signToken } from "../support/identity/tokens.ts";
import { randomFrom } from "../support/random.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const ISSUER = "https://id.example.com";
const ROUTES = 24;
const REQUESTS = 240;

const key = createSigningKey("ES256", "one");
const RULES = [
  '"admin" in jwt.roles',
  'jwt.sub == "alice"',
  'request.method == "GET"',
  "jwt.missing == 1",
  'has(jwt.team) && jwt.team == "red"',
  'request.headers["x-a"] == "1"',
  'source.address == "127.0.0.1"',
  'request.path.startsWith("/r1")',
  "1",
];

test("a dry run has the verdict of a real gateway, over random rules and requests", async (t) => {
  const seed = 20260728;
  const random = randomFrom(seed);
  const pick = <Item>(list: readonly Item[]): Item => list[Math.floor(random() * list.length)] as Item;
  const chance = (share: number): boolean => random() < share;
  const backend = await backendFor(t);

  const rule = (): unknown => {
    const written = pick(RULES);
    const kind = pick(["plain", "allow", "deny", "require"]);
    return kind === "plain" ? written : { [kind]: written };
  };
  const routes = Array.from({ length: ROUTES }, (_, i) => ({
    name: `r${i}`,
    matches: [{ path: { pathPrefix: `/r${i}` }, ...(chance(0.2) ? { method: "GET" } : {}) }],
    backends: [{ host: backend.host }],
    policies: {
      ...(chance(0.8)
        ? {
            jwtAuth: {
              issuer: ISSUER,
              audiences: ["gateway"],
              jwks: keySetOf(key),
              mode: pick(["strict", "optional", "permissive"]),
            },
          }
        : {}),
      ...(chance(0.3) ? { apiKey: { keys: [{ key: "a-key-of-a-client-1", metadata: { user: "k" } }] } } : {}),
      ...(chance(0.8) ? { authorization: { rules: Array.from({ length: 1 + Math.floor(random() * 3) }, rule) } } : {}),
      ...(chance(0.3) ? { cors: { allowOrigins: ["https://app.example.com"], allowMethods: ["GET", "PUT"] } } : {}),
      ...(chance(0.1) ? { requestRedirect: { hostname: "elsewhere.example.com" } } : {}),
      ...(chance(0.1) ? { directResponse: { status: 418, body: "tea" } } : {}),
      ...(chance(0.3) ? { requestHeaderModifier: { set: { "x-a": "1" } } } : {}),
    },
  }));
  const config = { gateways: { default: { port: 0, address: "127.0.0.1" } }, routes };
  const gateway = await gatewayFor(t, JSON.stringify(config));
  const file = join(gateway.folder, "config.yaml");
  const dry = openDryConfig([{ file, text: readFileSync(file, "utf8") }], { environment: {}, clock: systemClock });
  t.after(dry.close);
  assert.ok(dry.prepared.ok, JSON.stringify(dry.prepared));
  const runner = createDryRunner(dry.prepared.topology, dry.prepared.settings.redaction, systemClock);

  const outcomes = new Map<string, number>();
  for (let i = 0; i < REQUESTS; i++) {
    const path = pick([
      `/r${Math.floor(random() * ROUTES)}/x`,
      `/r${Math.floor(random() * ROUTES)}`,
      "/none",
      "/r1/..%2fx",
    ]);
    const method = pick(["GET", "GET", "PUT", "DELETE", "OPTIONS"]);
    const headers: Record<string, string> = {
      ...(chance(0.3) ? { "x-a": pick(["1", "2"]) } : {}),
      ...(chance(0.3) ? { "x-api-key": pick(["a-key-of-a-client-1", "another-key-another"]) } : {}),
      ...(chance(0.3) ? { origin: pick(["https://app.example.com", "https://evil.example"]) } : {}),
      ...(method === "OPTIONS" ? { "access-control-request-method": "PUT" } : {}),
    };
    const claims = chance(0.75)
      ? {
          sub: pick(["alice", "bob"]),
          roles: pick([["admin"], ["user"], ["admin", "user"], []]),
          ...(chance(0.5) ? { team: pick(["red", "blue"]) } : {}),
        }
      : undefined;
    const whole = claims && { iss: ISSUER, aud: "gateway", exp: Math.floor(Date.now() / 1000) + 86_400, ...claims };
    const authorization = whole && `Bearer ${signToken({ key, claims: whole })}`;
    const real = await fetch(`${gateway.url()}${path}`, {
      method,
      redirect: "manual",
      headers: { ...headers, ...(authorization === undefined ? {} : { authorization }) },
    });
    await real.arrayBuffer();
    const said = await runner.run({
      method,
      url: `${gateway.url()}${path}`,
      headers,
      given: whole && { claims: whole },
    });
    const described = JSON.stringify({
      seed,
      i,
      method,
      path,
      headers,
      claims,
      policies: said.policies,
      reason: said.reason,
    });
    assert.equal(said.status, real.status, described);
    const error = real.headers.get("x-gateway-error");
    assert.equal(said.outcome === "refused" ? said.reason?.code : null, error, described);
    for (const name of ["location", "access-control-allow-origin", "www-authenticate"])
      assert.equal(said.responseHeaders[name] ?? null, real.headers.get(name), `${name}: ${described}`);
    let subject: string | null = null;
    await eventually("the request is recorded", async () => {
      const found = await fetch(`${gateway.adminUrl}/debug/requests?id=${real.headers.get("x-request-id")}`);
      if (!found.ok) return false;
      subject = ((await found.json()) as { requests: { subject: string | null }[] }).requests[0]?.subject ?? null;
      return true;
    });
    if (subject !== null) assert.equal(said.subject, subject, described);
    const outcome = `${said.outcome} ${said.status}`;
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
  }
  // Nothing is shown by requests that all end the same way.
  for (const outcome of ["forwarded 200", "refused 401", "refused 403", "refused 404"])
    assert.ok((outcomes.get(outcome) ?? 0) > 5, `${outcome}: ${JSON.stringify([...outcomes])}`);
});
