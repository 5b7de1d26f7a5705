/**
 * `npm start` as a wrapper: it builds only what has changed, its exit code is the gateway's, and whoever ends npm ends
 * the gateway, gently. The script is run in a folder of its own with stand-ins for the build and the gateway.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";

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
  for (const name of ["start.mjs", "steps.mjs", "build-stamp.mjs"])
    copyFileSync(join(process.cwd(), "scripts", name), join(folder, "scripts", name));
  writeFileSync(join(folder, "scripts", "build.mjs"), "");
  writeFileSync(join(folder, "package-lock.json"), "{}");
  writeFileSync(join(folder, "node_modules", ".package-lock.json"), "{}");
  writeFileSync(join(folder, "dist", "gateway.js"), STAND_IN);
  return folder;
}

/** Builds nothing, and says so; the real stamp. */
const STAND_IN_BUILD = `
import { inputsHash, stampBuild } from "./build-stamp.mjs";
console.log("building");
stampBuild(inputsHash());
`;

function builtProject(t: TestContext) {
  const folder = project(t);
  mkdirSync(join(folder, "src"));
  writeFileSync(join(folder, "src", "a.ts"), "export const a = 1;\n");
  writeFileSync(join(folder, "scripts", "build.mjs"), STAND_IN_BUILD);
  const builds = (): boolean => {
    const run = spawnSync(process.execPath, [join(folder, "scripts", "start.mjs"), "--fail"], { encoding: "utf8" });
    assert.equal(run.status, 7, run.stderr);
    return run.stdout.includes("building");
  };
  assert.equal(builds(), true);
  return { folder, builds };
}

test("what was built is not built again, and its start writes nothing, so that a read-only checkout will do", (t) => {
  const { folder, builds } = builtProject(t);
  const state = () =>
    readdirSync(folder, { recursive: true })
      .map((name) => join(folder, String(name)))
      .map((path) => `${path} ${statSync(path, { bigint: true }).ctimeNs}`)
      .sort();
  const before = state();
  assert.equal(builds(), false);
  assert.deepEqual(state(), before);
});

const changes: [name: string, isInput: boolean, change: (folder: string) => void][] = [
  ["a changed source", true, (folder) => writeFileSync(join(folder, "src", "a.ts"), "export const a = 2;\n")],
  ["a new source", true, (folder) => writeFileSync(join(folder, "src", "b.ts"), "")],
  ["a source that is gone", true, (folder) => rmSync(join(folder, "src", "a.ts"))],
  ["other versions of dependencies", true, (folder) => writeFileSync(join(folder, "package-lock.json"), '{"a": 1}')],
  ["another build script", true, (folder) => writeFileSync(join(folder, "scripts", "build.mjs"), `${STAND_IN_BUILD};`)],
  ["a build that was thrown away", true, (folder) => rmSync(join(folder, "dist", ".built-from"))],
  ["a source that was only touched", false, (folder) => writeFileSync(join(folder, "src", "b.ts"), "")],
  ["a new test", false, (folder) => writeFileSync(join(folder, "src", "a.test.ts"), "")],
  ["a new document", false, (folder) => writeFileSync(join(folder, "README.md"), "Read me.\n")],
];
test("what changed is built, and nothing else", async (t) => {
  const { folder, builds } = builtProject(t);
  // Each change is made to what the one before left, and built if it should be.
  for (const [name, isInput, change] of changes)
    await t.test(`${name} is ${isInput ? "" : "not "}built`, () => {
      change(folder);
      assert.equal(builds(), isInput);
    });
});

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

test("the demo uses the next free port if its own is taken", async (t) => {
  const { freePort } = (await import(pathToFileURL(join(process.cwd(), "scripts/steps.mjs")).href)) as {
    freePort(port: number): Promise<number>;
  };
  const taken = createServer().listen(0, "127.0.0.1");
  t.after(() => taken.close());
  await once(taken, "listening");
  const { port } = taken.address() as AddressInfo;
  assert.ok((await freePort(port)) > port);
});

test("ports that are set stay, and reach the gateway", (t) => {
  const folder = project(t);
  writeFileSync(
    join(folder, "dist", "gateway.js"),
    "console.log(`ports ${process.env.PORT} ${process.env.ADMIN_PORT}`);",
  );
  const env = { ...process.env, PORT: "1", LLM_PORT: "2", ADMIN_PORT: "3" };
  const run = spawnSync(process.execPath, [join(folder, "scripts", "start.mjs")], { encoding: "utf8", env });
  assert.match(run.stdout, /ports 1 3\n/);
  assert.doesNotMatch(run.stdout, /is taken/);
});
