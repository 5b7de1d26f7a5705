/**
 * Invalid requests of one client to the login endpoints do not stop the logins and renewals of others.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { openTenant } from "../support/identity/identity-provider.ts";
import { REDIRECT_URI } from "../support/identity/mcp-login.ts";
import { DEMO_TARGET } from "../support/identity/protected-gateway.ts";
import { gatewayFor } from "../support/scenario.ts";

test("junk exhausts only the limit of its client and kind", async (t) => {
  const provider = await openTenant({ clientId: "app-1", redirectUri: REDIRECT_URI });
  t.after(() => provider.close());
  const gateway = await gatewayFor(
    t,
    `config: { trustedProxies: [127.0.0.1] }
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      issuer: ${provider.issuer}
      audiences: [app-1]
      provider: { idp_tenant: {} }
      clientId: app-1
      resourceMetadata: { resource: http://gateway.test/mcp }
`,
  );
  const origin = gateway.url("mcp");
  const metadata = (await (await fetch(`${origin}/.well-known/oauth-authorization-server/mcp`)).json()) as {
    token_endpoint: string;
    registration_endpoint: string;
  };
  const send = async (url: string, client: string, type: string, body: string): Promise<number> => {
    const headers = { "content-type": type, "x-forwarded-for": client };
    const response = await fetch(`${origin}${new URL(url).pathname}`, { method: "POST", headers, body });
    await response.text();
    return response.status;
  };
  const form = "grant_type=refresh_token&client_id=app-1&refresh_token=unknown";
  const renew = (client: string): Promise<number> =>
    send(metadata.token_endpoint, client, "application/x-www-form-urlencoded", form);
  const register = (client: string, body: string): Promise<number> =>
    send(metadata.registration_endpoint, client, "application/json", body);

  const before = await renew("192.0.2.7");
  assert.notEqual(before, 429);
  const counts: Record<string, number> = {};
  for (let i = 0; i < 130; i++)
    for (const status of [
      `token ${await send(metadata.token_endpoint, "192.0.2.66", "text/plain", "x")}`,
      `registration ${await register("192.0.2.66", "no JSON")}`,
    ])
      counts[status] = (counts[status] ?? 0) + 1;
  assert.deepEqual(counts, { "token 400": 120, "token 429": 10, "registration 400": 120, "registration 429": 10 });
  assert.equal(await renew("192.0.2.7"), before);
  assert.equal(await register("192.0.2.7", JSON.stringify({ redirect_uris: [REDIRECT_URI] })), 201);
});
