/**
 * `npm run test:fast`: the unit tests and the scenarios of the HTTP edge and its engine, on the Node that runs this
 * script. CI uses it for the Node versions on which the whole suite does not run, with `--compiled` after `npm test`.
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { isBuilt } from "./build-stamp.mjs";
import { installIfMissing, root, step } from "./steps.mjs";

const SCENARIOS = [
  "edge-",
  "http-",
  "http2",
  "client-",
  "canonical-path",
  "connection-scripts",
  "headers-asserted",
  "limits-bodies",
  "plain-reads",
  "stream-pieces",
  "trace-edge",
  "tunnels",
  "wire-truth",
];

installIfMissing();
if (!isBuilt()) step("build", process.execPath, ["scripts/build.mjs"]);
const paths = ["src", ...SCENARIOS.map((name) => `test/scenario/${name}`)];
const args = [join(root, "scripts", "test.mjs"), ...process.argv.slice(2), ...paths];
const run = spawnSync(process.execPath, args, { cwd: root, stdio: "inherit" });
process.exit(run.status ?? 1);
