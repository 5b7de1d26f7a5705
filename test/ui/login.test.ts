/**
 * The playground signs in where a route asks for it: metadata, registration, authorization code with PKCE in a window
 * of the identity provider, token, connect; each leg is shown, and a refused token is explained. And the UI on a gateway is
 * opened by those who sign in: what a viewer may not do is not offered, and signing out is said.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { DEMO_TARGET, startProtectedGateway } from "../support/identity/protected-gateway.ts";
import { ARTIFACTS, openBrowser, openPage, skip } from "./browser.ts";
import { openSignInPage } from "./sign-in-page.ts";

for (const { audience, connects } of [
  { audience: "gateway", connects: true },
  { audience: "account", connects: false },
])
  test(`a token for ${audience} ${connects ? "opens the tools" : "is refused, and the request says why"}`, {
    skip,
  }, async (context) => {
    const provider = await openSignInPage(audience);
    const { gateway, close } = await startProtectedGateway(
      (base) => `
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      mode: strict
      issuer: ${provider.issuer}
      audiences: [gateway]
      provider: { idp_realm: {} }
      resourceMetadata:
        resource: ${base}/mcp
        scopesSupported: [openid, tools]
`,
      { environment: { PATH: process.env.PATH ?? "" } },
    );
    const browser = await openBrowser();
    context.after(async () => {
      await browser.close();
      await close();
      await provider.close();
    });

    const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/mcp`);
    await page.getByRole("button", { name: "Connect", exact: true }).click();
    await page.getByText("the gateway responded with 401: JWT token required").waitFor();
    const opened = page.waitForEvent("popup");
    await page.getByRole("button", { name: "Sign in" }).click();
    const popup = await opened;
    await popup.getByRole("link", { name: "Sign in as ann" }).click();
    if (connects) {
      await page.getByRole("button", { name: /^echo/ }).click();
      await page.getByLabel(/^message/).fill("signed in");
      await page.getByRole("button", { name: "Call" }).click();
      await page.locator(".result").getByText("signed in").waitFor();
    } else {
      await page
        .getByText(/audience/)
        .first()
        .waitFor();
      for (const leg of [
        "Protected resource metadata",
        "Authorization server metadata",
        "Client registration",
        "Token",
      ])
        await page.getByText(leg, { exact: true }).waitFor();
      await page.screenshot({ path: join(ARTIFACTS, "login-refused.png") });
    }
    assert.ok(!(await page.content()).includes("eyJ"), "a token is in the page");
    assert.deepEqual(errors, []);
  });

test("the UI on a gateway asks for a sign-in, shows the role, and signs out", { skip }, async (context) => {
  let roles: readonly string[] = [];
  const provider = await openSignInPage("gateway", () => roles);
  const { base, close } = await startProtectedGateway(
    (origin) => `
gateways: { default: { port: 0 } }
ui:
  policies: { oidc: { issuer: "${provider.issuer}", clientId: ui, redirectUri: "${origin}/oidc/callback" } }
  operator: '"operator" in jwt.roles'
`,
  );
  const browser = await openBrowser();
  context.after(async () => {
    await browser.close();
    await close();
    await provider.close();
  });
  const { page, errors } = await openPage(browser, `${base}/ui/runtime`);
  const signIn = () => page.getByRole("link", { name: "Sign in as ann" }).click();
  await signIn();
  await page.getByText("read-only").waitFor();
  await page.getByText("Process (RSS)").waitFor();
  assert.equal(await page.getByRole("heading", { name: "Log level" }).count(), 0);
  await page.getByRole("button", { name: /Sign out/ }).click();
  await page.waitForURL(/signed-out/);
  roles = ["operator"];
  await page.goto(`${base}/ui/runtime`);
  await signIn();
  await page.getByText("· operator").waitFor();
  await page.getByRole("heading", { name: "Log level" }).waitFor();
  await page.context().clearCookies();
  await page.getByText("You are signed out.").waitFor();
  await page.screenshot({ path: join(ARTIFACTS, "signed-out.png") });
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await signIn();
  await page.getByRole("heading", { name: "Log level" }).waitFor();
  assert.equal(await page.getByText("You are signed out.").count(), 0);
  assert.deepEqual(errors, []);
});
