/**
 * Writes a configuration to a temporary folder that is removed when the test ends.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

export function configFile(t: TestContext, text: string): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-test-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "config.yaml");
  writeFileSync(file, text);
  return file;
}
