/**
 * A gateway that has served users with tokens and keys, and a rehearsal of another configuration on it.
 */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import type { RehearsalReport } from "../../src/app/rehearsal/rehearsal-report.ts";
import type { TestGateway } from "./gateway.ts";
import { createSigningKey, keySetOf, signToken } from "./identity/tokens.ts";
import { backendFor, gatewayFor } from "./scenario.ts";

export const ISSUER = "https://id.example.com";
export const key = createSigningKey("ES256", "one");

export interface Parts {
  readonly rules?: readonly string[];
  readonly audiences?: readonly string[];
  readonly keys?: readonly object[];
  readonly limit?: object;
  readonly prefix?: string;
  readonly header?: string;
}

export const ALICE = { key: "key-of-alice-12345", metadata: { user_id: "alice-key" } };
export const BOB = { key: "key-of-bob-12345678", metadata: { user_id: "bob-key" } };

export function configOf(host: string, parts: Parts = {}): string {
  const {
    rules = ['"admin" in jwt.roles || "user" in jwt.roles'],
    audiences = ["gateway"],
    keys = [ALICE, BOB],
  } = parts;
  const { limit, prefix = "/people", header } = parts;
  return JSON.stringify({
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        name: "people",
        matches: [{ path: { pathPrefix: prefix } }],
        backends: [{ host }],
        policies: {
          jwtAuth: { issuer: ISSUER, audiences, jwks: keySetOf(key) },
          authorization: { rules },
          ...(limit ? { rateLimit: { local: [limit] } } : {}),
          ...(header === undefined ? {} : { requestHeaderModifier: { set: { [header]: "1" } } }),
        },
      },
      {
        name: "keys",
        matches: [{ path: { pathPrefix: "/keys" } }],
        backends: [{ host }],
        policies: { apiKey: { keys } },
      },
    ],
  });
}

export function tokenOf(sub: string, roles: readonly string[]): string {
  const exp = Math.floor(Date.now() / 1000) + 86_400;
  const claims = { iss: ISSUER, aud: "gateway", exp, sub, roles, preferred_username: `${sub}@example.com` };
  return `Bearer ${signToken({ key, claims })}`;
}

export async function seen(t: TestContext): Promise<{ gateway: TestGateway; host: string; calls(): number }> {
  let calls = 0;
  const backend = await backendFor(t, (_, response) => {
    calls += 1;
    response.end("ok");
  });
  const gateway = await gatewayFor(t, configOf(backend.host));
  const ask = async (path: string, headers: Record<string, string>, status: number): Promise<void> => {
    const response = await fetch(gateway.url() + path, { headers });
    await response.arrayBuffer();
    assert.equal(response.status, status);
  };
  for (let i = 0; i < 3; i++) await ask("/people/1", { authorization: tokenOf("bob", ["user"]) }, 200);
  await ask("/people/1", { authorization: tokenOf("alice", ["admin"]) }, 200);
  await ask("/people/1", { authorization: tokenOf("eve", ["guest"]) }, 403);
  await ask("/people/1", {}, 401);
  await ask("/keys/1", { "x-api-key": ALICE.key }, 200);
  await ask("/keys/1", { "x-api-key": BOB.key }, 200);
  return { gateway, host: backend.host, calls: () => calls };
}

export async function ask(gateway: TestGateway, text: string): Promise<RehearsalReport> {
  const answer = await fetch(`${gateway.adminUrl}/debug/rehearse`, { method: "POST", body: text });
  assert.equal(answer.status, 200, await answer.clone().text());
  return (await answer.json()) as RehearsalReport;
}
