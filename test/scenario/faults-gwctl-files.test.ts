/**
 * Files that gwctl reads and writes (row G4 of the threat table): too large a dump is not read, and nobody's file is
 * overwritten but the one that was named.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { gwctl } from "../support/gwctl.ts";
import { gatewayFor } from "../support/scenario.ts";

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "gwctl-test-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("a dump of more than 64 MiB is refused before it is read [G4]", async (t) => {
  const file = join(folderFor(t), "dump.json");
  writeFileSync(file, '{"a":1}');
  // Blank space behind the value, which takes no room on the disk.
  truncateSync(file, 64 * 1024 * 1024 + 1);
  const { code, stdout, stderr } = await gwctl(["proxy", "config", "all", "--file", file]);
  assert.deepEqual([code, stdout], [1, ""]);
  assert.match(stderr, /^gwctl: failed to read config dump file \S+: larger than 64 MiB\n$/);
  writeFileSync(file, '{"a":1}');
  assert.equal((await gwctl(["proxy", "config", "all", "--file", file])).stdout, "a: 1\n");
});

test("a profile replaces the file that was named, and never one that gwctl named itself [G4]", {
  skip: process.platform !== "linux" && "profiles are Linux",
}, async (t) => {
  const folder = folderFor(t);
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  const heap = (...more: string[]) =>
    gwctl(["proxy", "profile", "heap", "-p", new URL(gateway.adminUrl).port, ...more], {
      cwd: folder,
      environment: { TZ: "UTC" },
    });
  writeFileSync(join(folder, "mine.pb.gz"), "old");
  assert.equal((await heap("-o", "mine.pb.gz")).code, 0);
  assert.deepEqual([...readFileSync(join(folder, "mine.pb.gz")).subarray(0, 2)], [0x1f, 0x8b]);
  rmSync(join(folder, "mine.pb.gz"));

  // Every name that it could choose in the next minute is taken.
  for (let second = 0; second < 60; second++) {
    const at = new Date(Date.now() + second * 1000)
      .toISOString()
      .replaceAll(/[-:]|\..*/g, "")
      .replace("T", "-");
    writeFileSync(join(folder, `gwctl-heap-${at}.pb.gz`), "somebody's");
  }
  const { code, stderr } = await heap();
  assert.equal(code, 1);
  assert.match(stderr, /cannot write gwctl-heap-\S+: EEXIST/);
  for (const name of readdirSync(folder)) assert.equal(readFileSync(join(folder, name), "utf8"), "somebody's", name);
});
