/**
 * The built UI in dist/ui: `npm test` builds it first; a run of single tests builds it here when it is missing.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

export function bundledUi(): void {
  if (existsSync(join(process.cwd(), "dist", "ui", "index.html"))) return;
  const built = spawnSync(process.execPath, ["scripts/build-ui.mjs"], { stdio: "inherit" });
  if (built.status !== 0) throw new Error("the web UI could not be built");
}
