import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { gwctl } from "../support/gwctl.ts";
import { openRealm } from "../support/identity/identity-provider.ts";

let folder: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), "gwctl-auth-"));
});
after(() => rmSync(folder, { recursive: true, force: true }));

function config(issuer: string): string {
  const file = join(folder, "config.yaml");
  writeFileSync(
    file,
    `
mcp:
  port: 0
  targets: [{ name: demo, stdio: { cmd: node } }]
  policies:
    mcpAuthentication:
      mode: strict
      issuer: ${issuer}
      audiences: [gateway]
      provider: { idp_realm: {} }
      resourceMetadata: { resource: http://localhost:3000/mcp }
`,
  );
  return file;
}

test("auth check walks the legs of a login and says that each works", async () => {
  const realm = await openRealm();
  const { stdout, stderr } = await gwctl(["auth", "check", "-f", config(realm.issuer)]);
  await realm.close();
  for (const leg of ["metadata", "keys", "registration"]) assert.match(stdout, new RegExp(`✓ ${leg}`), stdout + stderr);
});

test("a provider that cannot be reached fails with exit code 1 and what mends it", async () => {
  const { code, stdout, stderr } = await gwctl(["auth", "check", "-f", config("http://127.0.0.1:1/realms/x")]);
  assert.equal(code, 1);
  assert.match(stdout, /✗ metadata/);
  assert.match(stdout, /→ /);
  assert.match(stderr, /\d+ login checks? failed/);
});

test("a configuration without a login, a broken one and a missing one are said to be so", async () => {
  const file = join(folder, "plain.yaml");
  writeFileSync(file, "gateways: { default: { port: 0 } }\n");
  assert.match((await gwctl(["auth", "check", "-f", file])).stderr, /no mcpAuthentication policy/);
  writeFileSync(file, "gateways: { default: { prt: 0 } }\n");
  assert.match((await gwctl(["auth", "check", "-f", file])).stderr, /prt/);
  assert.match((await gwctl(["auth", "check", "-f", join(folder, "none.yaml")])).stderr, /no such file or directory/);
  assert.equal((await gwctl(["auth", "check"])).code, 2);
});
