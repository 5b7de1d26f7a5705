/**
 * `gwctl auth check` ticks what it has seen work, and nothing else.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { gwctl } from "../support/gwctl.ts";
import { openRealm } from "../support/identity/identity-provider.ts";

function config(t: TestContext, issuer: string, provider: string): string {
  const folder = mkdtempSync(join(tmpdir(), "gwctl-auth-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "config.yaml");
  const policy = `{ issuer: "${issuer}", audiences: [gateway], ${provider} resourceMetadata: { resource: "http://localhost:3000/mcp" } }`;
  writeFileSync(
    file,
    `mcp: { port: 0, targets: [{ name: demo, stdio: { cmd: node } }], policies: { mcpAuthentication: ${policy} } }\n`,
  );
  return file;
}

test("a token that nobody gave gets no tick, and is no failure", async (t) => {
  const realm = await openRealm();
  t.after(() => realm.close());
  const { stdout } = await gwctl(["auth", "check", "-f", config(t, realm.issuer, "provider: { idp_realm: {} },")]);
  assert.match(stdout, /^ {2}✓ metadata/m);
  assert.match(stdout, /^ {2}- token {10}not checked: use --token-file/m);
  assert.doesNotMatch(stdout, /[✓✗] token /);
});

test("of a provider that cannot be reached only the metadata fails; nothing is said about what is in it", async (t) => {
  const { code, stdout, stderr } = await gwctl(["auth", "check", "-f", config(t, "http://127.0.0.1:1", "")]);
  assert.equal(code, 1);
  assert.match(stdout, /^ {2}✗ metadata/m);
  assert.match(stdout, /^ {2}- keys {11}not checked: the metadata with their address could not be read/m);
  assert.doesNotMatch(stdout, /jwks_uri/);
  assert.match(stderr, /1 login check failed/);
});
