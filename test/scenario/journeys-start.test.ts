/**
 * `npm start` as a wrapper: its exit code is the gateway's, and whoever ends npm ends the gateway, gently. The script is
 * run in a folder of its own with a stand-in for the gateway, so that nothing is built.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";

/** Longer than two looks at the parent, so that a second signal would be seen. */
const DRAIN_MS = 1_300;

const STAND_IN = `
if (process.argv[2] === "--fail") process.exit(7);
let signals = 0;
process.on("SIGTERM", () => {
  signals += 1;
  if (signals === 1) setTimeout(() => { console.log("ended after " + signals); process.exit(0); }, ${DRAIN_MS});
});
setInterval(() => undefined, 1000);
console.log("running " + process.pid);
`;

function project(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-start-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  for (const name of ["scripts", "dist", "node_modules"]) mkdirSync(join(folder, name));
  for (const name of ["start.mjs", "steps.mjs"])
    copyFileSync(join(process.cwd(), "scripts", name), join(folder, "scripts", name));
  writeFileSync(join(folder, "scripts", "build.mjs"), "");
  writeFileSync(join(folder, "package-lock.json"), "{}");
  writeFileSync(join(folder, "node_modules", ".package-lock.json"), "{}");
  writeFileSync(join(folder, "dist", "gateway.js"), STAND_IN);
  return folder;
}

test("the gateway's exit code is the command's", async (t) => {
  const child = spawn(process.execPath, [join(project(t), "scripts", "start.mjs"), "--fail"], { stdio: "ignore" });
  assert.deepEqual(await once(child, "exit"), [7, null]);
});

for (const signal of ["SIGTERM", "SIGKILL"] as const) {
  test(`${signal} to npm's shell ends the gateway behind it, with one signal`, async (t) => {
    const script = join(project(t), "scripts", "start.mjs");
    // As npm does it: a shell that waits for the command and passes nothing on.
    const shell = spawn("sh", ["-c", `"${process.execPath}" "${script}"; exit $?`], {
      stdio: ["pipe", "pipe", "ignore"],
    });
    let output = "";
    const started = new Promise<number>((resolve) => {
      shell.stdout.on("data", (chunk) => {
        output += String(chunk);
        const pid = /running (\d+)/.exec(output)?.[1];
        if (pid !== undefined) resolve(Number(pid));
      });
    });
    const pid = await started;
    t.after(() => {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It ended, as it should.
      }
    });
    const closed = once(shell, "close");
    shell.kill(signal);
    await closed;
    assert.match(output, /ended after 1\n$/);
  });
}
