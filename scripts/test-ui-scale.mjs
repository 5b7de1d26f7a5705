/**
 * `npm run test:ui-scale`: tests the web UI with 500 routes, 1,000 tools and 10,000 requests, in both themes, at 1280
 * and 400 pixels, and measures the time of each action until it is drawn. Needs Chromium and an idle machine.
 */
import { spawnSync } from "node:child_process";
import { root } from "./steps.mjs";

const run = spawnSync(process.execPath, ["scripts/test.mjs", "test/ui/scale", "test/ui/away-pages"], {
  cwd: root,
  stdio: "inherit",
  env: { ...process.env, UI_SCALE: "full" },
});
process.exit(run.status ?? 1);
