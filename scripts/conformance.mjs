/**
 * `npm run conformance`: runs the official MCP conformance suite of both protocol versions through the gateway, with a
 * fixture server over stdio and over HTTP. Prints the scores, and fails if a native pair is below the full score.
 */
import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { bin, installIfMissing, root } from "./steps.mjs";

installIfMissing();
const out = `build-${process.pid}`;
const compile = ["-p", ".", "--outDir", out, "--noCheck", "--incremental", "false"];
const compiled = spawnSync(bin("tsc"), compile, { cwd: root, stdio: "inherit" });
const run =
  compiled.status === 0
    ? spawnSync(
        process.execPath,
        ["--enable-source-maps", `${out}/test/support/mcp/run-conformance.js`, ...process.argv.slice(2)],
        {
          cwd: root,
          stdio: "inherit",
        },
      )
    : compiled;
rmSync(join(root, out), { recursive: true, force: true });
process.exit(run.status ?? 1);
