/**
 * People sign in with their browser (`oidc`), the UI on a gateway knows viewers and operators, and the gateway itself refuses
 * what a viewer or a page of another site wants to change.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Browser, openBrowser } from "../support/identity/browser.ts";
import { type IdentityProviderStandIn, openTenant } from "../support/identity/identity-provider.ts";
import { type ProtectedGateway, startProtectedGateway } from "../support/identity/protected-gateway.ts";

let provider: IdentityProviderStandIn;
let protectedGateway: ProtectedGateway;
let base: string;
let roles: readonly string[] = [];

before(async () => {
  protectedGateway = await startProtectedGateway(async (origin) => {
    const redirectUri = ["/oidc/callback", "/app/callback"].map((path) => `${origin}${path}`);
    provider = await openTenant({ clientId: "ui", clientSecret: "s3cret-s3cret", redirectUri, roles: () => roles });
    const client = `issuer: "${provider.issuer}", clientId: ui, clientAuth: post, scopes: [openid]`;
    return `
gateways: { default: { port: 0 } }
routes:
  - name: app
    matches: [{ path: { pathPrefix: /app } }]
    policies:
      oidc: { ${client}, clientSecret: wrong, redirectUri: "${origin}/app/callback" }
      directResponse: { status: 200, body: inside }
ui:
  policies:
    oidc: { ${client}, clientSecret: s3cret-s3cret, redirectUri: "${origin}/oidc/callback" }
  operator: '"operator" in jwt.roles'
`;
  });
  base = protectedGateway.base;
});
after(async () => {
  await protectedGateway?.close();
  await provider?.close();
});

/** Through the provider and back; the answer to the callback. */
async function signIn(browser: Browser, path = "/ui/"): Promise<Response> {
  return browser.fetch(await browser.visit(new URL(`${base}${path}`), `${base}/oidc/callback`));
}

/** As a page of the UI asks. */
function call(browser: Browser, name: string, body?: object, origin = base): Promise<Response> {
  const headers: Record<string, string> = { accept: "*/*", "sec-fetch-mode": "cors", "sec-fetch-site": "same-origin" };
  if (body === undefined) return browser.fetch(`${base}/ui/api/${name}`, { headers });
  if (origin !== "") headers.origin = origin;
  return browser.fetch(`${base}/ui/api/${name}`, { method: "POST", headers, body: JSON.stringify(body) });
}

const CHANGES: readonly [name: string, body: object][] = [
  ["keys", { make: { name: "team" } }],
  ["keys", { revoke: "000000000000" }],
  ["debug/mcp/sessions", { end: "0123456789" }],
  ["debug/mcp/connections", { action: "revoke", id: "a" }],
  ["debug/mcp/tools", {}],
  ["debug/mcp/lock", { backend: "tools" }],
  ["logging?level=debug", {}],
];

test("a visitor is sent to the provider and back to the page; the session cookie is kept from scripts and other sites", async () => {
  const browser = openBrowser();
  const first = await browser.fetch(`${base}/ui/limits?key=a`);
  const there = new URL(first.headers.get("location") ?? "");
  assert.equal(first.status, 302);
  assert.equal(there.searchParams.get("code_challenge_method"), "S256");
  assert.ok((there.searchParams.get("nonce") ?? "").length > 20 && (there.searchParams.get("state") ?? "").length > 20);
  roles = [];
  const back = await signIn(browser, "/ui/limits?key=a");
  assert.equal(back.status, 302);
  assert.equal(back.headers.get("location"), `${base}/ui/limits?key=a`);
  const cookie = back.headers.getSetCookie().find((line) => line.startsWith("gateway_session_")) ?? "";
  for (const flag of ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=28800"]) assert.ok(cookie.includes(flag), cookie);
  assert.equal((await browser.fetch(`${base}/ui/`)).status, 200);
  const about = (await (await call(browser, "about")).json()) as Record<string, unknown>;
  assert.equal(about.user, "Alice Example");
  assert.equal(about.role, "viewer");
  assert.equal(about.logoutPath, "/oidc/logout");
});

test("a page's own request, a script and a wrong cookie get 401 and no redirect", async () => {
  const browser = openBrowser();
  assert.equal((await call(browser, "about")).status, 401);
  const script = await fetch(`${base}/ui/api/metrics`, { headers: { cookie: "gateway_session_x=a" } });
  assert.equal(script.status, 401);
  assert.match(await script.text(), /sign in with a browser at http/);
});

test("a viewer sees, and the gateway refuses every change", async () => {
  roles = ["viewer"];
  const browser = openBrowser();
  await signIn(browser);
  for (const name of ["config_dump", "metrics", "debug/requests", "debug/limits", "debug/budgets"])
    assert.equal((await call(browser, name)).status, 200, name);
  for (const [name, body] of CHANGES) {
    const answer = await call(browser, name, body);
    assert.equal(answer.status, 403, name);
    assert.match(await answer.text(), /needs the role operator/);
  }
  assert.equal((await call(browser, "keys")).status, 403);
  for (const name of ["quitquitquit", "upgrade", "call", "config", "debug/trace"])
    assert.equal((await call(browser, name, {})).status, 404, name);
});

test("an operator changes from the UI's own page alone", async () => {
  roles = ["operator"];
  const browser = openBrowser();
  await signIn(browser);
  for (const origin of ["https://evil.example", "null", "", `${base}.evil.example`])
    for (const [name, body] of CHANGES)
      assert.equal((await call(browser, name, body, origin)).status, 403, `${name} from ${origin}`);
  const made = (await (await call(browser, "keys", { make: { name: "team" } })).json()) as { id: string; key: string };
  assert.match(made.key, /^gw-/);
  assert.match(await (await call(browser, "keys")).text(), new RegExp(made.id));
  assert.ok(!(await (await call(browser, "keys")).text()).includes(made.key));
  assert.equal((await call(browser, "keys", { revoke: made.id })).status, 200);
  for (const name of ["quitquitquit", "upgrade", "call", "config", "debug/trace"])
    assert.equal((await call(browser, name, {})).status, 404, name);
});

test("signing out ends the session for good; another site cannot do it", async () => {
  roles = ["viewer"];
  const browser = openBrowser();
  const back = await signIn(browser);
  const [kept = ""] =
    back.headers
      .getSetCookie()
      .find((line) => line.startsWith("gateway_session_"))
      ?.split(";") ?? [];
  const leave = (origin: string, method = "POST") =>
    browser.fetch(`${base}/oidc/logout`, { method, headers: { origin, accept: "application/json" } });
  assert.equal((await leave(base, "GET")).status, 405);
  assert.equal((await leave("https://evil.example")).status, 403);
  assert.equal((await call(browser, "about")).status, 200);
  const left = await leave(base);
  assert.equal(left.status, 200);
  assert.match(((await left.json()) as { location: string }).location, /client_id=ui/);
  assert.equal((await call(browser, "about")).status, 401);
  const copied = await fetch(`${base}/ui/api/about`, { headers: { cookie: kept } });
  assert.equal(copied.status, 401);
  assert.match(await copied.text(), /the session has ended/);
});

test("a sign-in that fails says why", async () => {
  const browser = openBrowser();
  const callback = await browser.visit(new URL(`${base}/ui/`), `${base}/oidc/callback`);
  const elsewhere = await openBrowser().fetch(callback);
  assert.equal(elsewhere.status, 401);
  assert.match(await elsewhere.text(), /not begun in this browser/);
  const denied = new URL(callback);
  denied.searchParams.delete("code");
  denied.searchParams.set("error", "access_denied");
  denied.searchParams.set("error_description", "no <b>way</b>");
  const answer = await browser.fetch(denied);
  assert.equal(answer.status, 401);
  assert.match(await answer.text(), /access_denied: no <b>way<\/b>/);
  assert.match(answer.headers.get("content-type") ?? "", /^text\/plain/);
  const other = new URL(callback);
  other.searchParams.set("iss", "https://other.example");
  assert.match(await (await browser.fetch(other)).text(), /another identity provider/);
  // The secret of the other client is wrong: the operator reads in the log what to look at.
  const app = await browser.fetch(await browser.visit(new URL(`${base}/app/`), `${base}/app/callback`));
  assert.match(await app.text(), /rejected the code with invalid_client/);
  await protectedGateway.gateway.logged("check `clientId`, `clientSecret` and `clientAuth`");
  // A session of the UI is nothing to another route.
  await signIn(browser);
  assert.equal((await browser.fetch(`${base}/app/`)).status, 302);
});
