/**
 * The MCP page says which servers are down, why, and what they last wrote.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { rawClient } from "../support/mcp/client.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { gatewayFor } from "../support/scenario.ts";
import { openBrowser, openPage, skip } from "./browser.ts";

test("a server that is down is failing on the page, with its reason and its stderr", { skip }, async (context) => {
  const gateway = await gatewayFor(
    context,
    `
mcp:
  port: 0
  targets:
    - { name: good, stdio: ${JSON.stringify(stdioFixture("odd-server"))} }
    - { name: bad, stdio: { cmd: sh, args: ["-c", "echo reading the licence >&2; echo none found >&2; exit 7"] } }
`,
  );
  await rawClient(`${gateway.url()}/mcp`).initialize();
  const browser = await openBrowser();
  context.after(() => browser.close());
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/mcp`);
  const row = page.getByRole("row", { name: /^bad/ });
  await row.getByText("failed").waitFor();
  await row.getByText("exited with code 7: none found").waitFor();
  await row.getByText("stderr").click();
  await row.locator("pre").getByText("reading the licence").waitFor();
  await page.getByRole("row", { name: /^good/ }).getByText("running (1 session)").waitFor();
  assert.deepEqual(errors, []);
});
