import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { eventually } from "../../../test/support/eventually.ts";
import { systemClock } from "../../base/clock.ts";
import { MessagePool } from "../../base/memory-budget.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { StdioProcess } from "./stdio-transport.ts";

// The clock's timers do not keep a process alive, and these tests wait for nothing else at times.
const alive = setInterval(() => undefined, 60_000);
after(() => clearInterval(alive));

interface CallHandle {
  readonly child: StdioProcess;
  readonly lines: string[];
  readonly exited: Promise<string>;
  /** Resolves with the next line. */
  line(): Promise<string>;
}

function run(script: string, ...args: string[]): CallHandle {
  return start(process.execPath, ["-e", script, ...args]);
}

function start(cmd: string, args: readonly string[], cwd?: string): CallHandle {
  const lines: string[] = [];
  const waiting: ((line: string) => void)[] = [];
  let resolveExited: (reason: string) => void = () => undefined;
  const exited = new Promise<string>((resolve) => {
    resolveExited = resolve;
  });
  const child = new StdioProcess(
    {
      name: "t",
      cmd,
      args,
      cwd,
      env: { PATH: "/usr/bin:/bin" },
      secrets: ["given-secret"],
      maxLineBytes: 10 * 1024 * 1024,
      maxWriteBytes: 4 * 1024 * 1024,
      messages: new MessagePool(2 ** 30, systemClock).server(),
      clock: systemClock,
      logger: silentLogger,
    },
    {
      line(text) {
        const next = waiting.shift();
        if (next) next(text);
        else lines.push(text);
      },
      exited: resolveExited,
    },
  );
  const line = (): Promise<string> => {
    const known = lines.shift();
    return known === undefined ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve(known);
  };
  return { child, lines, exited, line };
}

const ECHO = "process.stdin.on('data', (d) => process.stdout.write(d))";

test("lines go in and come out, in order", async () => {
  const { child, line } = run(ECHO);
  for (let i = 0; i < 100; i++) child.write(`line ${i}`);
  for (let i = 0; i < 100; i++) assert.equal(await line(), `line ${i}`);
  await child.stop();
});

test("arguments are passed as they stand: no shell looks at them [P1]", async () => {
  const hostile = "; touch /tmp/never $(id) `id` | cat > x && \"'";
  const { child, line } = run("console.log(JSON.stringify(process.argv.slice(1)))", hostile);
  assert.deepEqual(JSON.parse(await line()), [hostile]);
  await child.stop();
});

test("a command that does not exist is reported at once, and nothing is left", async () => {
  const { child, exited } = start("/nonexistent/command", []);
  assert.match(await exited, /could not be started: .*ENOENT/);
  await child.stop();
  assert.equal(child.pid, undefined);
});

test("a working directory that does not exist is named", async () => {
  const { exited } = start(process.execPath, ["-v"], "/nonexistent/folder");
  assert.match(await exited, /could not be started: .*\/nonexistent\/folder\): its working directory does not exist$/);
});

const notStarted: [name: string, cmd: string, cwd: string | undefined, mend: RegExp][] = [
  ["a name that PATH does not know", "no-such-program", undefined, /ENOENT: it is not on the gateway's PATH$/],
  ["a path where nothing is", "/nonexistent/command", undefined, /ENOENT: no such file$/],
  ["a path that counts from a folder", "./none.sh", "/tmp", /ENOENT \(in \/tmp\): no such file$/],
  ["a whole command line", "npx -y server", undefined, /ENOENT: `cmd` is one program, put its arguments in `args`$/],
  ["the shell's word for home", "~/server", undefined, /ENOENT: `~` is not expanded, use the full path$/],
  [
    "a folder that is missing, whatever the command",
    "npx -y server",
    "/nonexistent",
    /its working directory does not exist$/,
  ],
];
for (const [name, cmd, cwd, mend] of notStarted) {
  test(`${name} cannot be started, and what mends it is said`, async () => {
    const reason = await start(cmd, ["given-secret"], cwd).exited;
    assert.match(reason, mend);
    assert.doesNotMatch(reason, /given-secret/);
  });
}

test("a child that cannot be started for want of descriptors leaves none open, however many there are [R7]", {
  skip: hasPrlimit() ? false : "there is no prlimit",
}, async (t) => {
  // It lives already: with few descriptors no other could be started to raise the limit again.
  const shell = spawn("sh", [], { stdio: ["pipe", "pipe", "ignore"] });
  const setLimit = async (files: number): Promise<void> => {
    shell.stdin.write(`prlimit --pid ${process.pid} --nofile=${files}: && echo\n`);
    await once(shell.stdout, "data");
  };
  const before = Number(
    /nofile\s+\D*(\d+)/i.exec(execFileSync("prlimit", ["--pid", String(process.pid)]).toString())?.[1],
  );
  t.after(() => shell.stdin.end());
  const openFiles = (): number => readdirSync("/proc/self/fd").length;
  for (let spare = 0; spare <= 10; spare++) {
    const first = openFiles();
    await setLimit(first + 100);
    const taken = takeAll();
    for (const descriptor of taken.splice(0, spare)) closeSync(descriptor);
    const { child, exited } = start("/bin/true", []);
    for (const descriptor of taken) closeSync(descriptor);
    await setLimit(before);
    assert.match(
      await exited,
      spare < 8 ? /^could not be started: too many files are open \(EMFILE\)$/ : /^exited with/,
    );
    await child.stop();
    await eventually(`${spare} spare: as many files are open as before`, () => openFiles() <= first);
  }
});

test("a file without execute permission is reported [R7]", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "stdio-process-"));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "server.sh"), "#!/bin/sh\n", { mode: 0o644 });
  const { exited } = start("./server.sh", [], folder);
  assert.match(await exited, /EACCES \(in .*\): it is not executable$/);
});

test("a child runs in its working directory, without a start hint", async () => {
  const { child, line, exited } = start(process.execPath, ["-e", "console.log(process.cwd())"], "/");
  assert.equal(await line(), "/");
  assert.equal(await exited, "exited with code 0");
  await child.stop();
});

test("the exit reason of a child has the last line of its stderr", async () => {
  const { exited, line } = run(
    "console.error('first'); console.error('the reason'); console.log('last words'); process.exitCode = 3",
  );
  assert.equal(await line(), "last words");
  assert.match(await exited, /^exited with code 3: the reason$/);
});

test("the end of stdin ends a child that listens to it", async () => {
  const { child, exited } = run(ECHO);
  const stopped = child.stop();
  assert.match(await exited, /exited with code 0/);
  await stopped;
  assert.equal(isAlive(child.pid), false);
});

test("a child that ignores the end of stdin and TERM is killed, with everything it started [R9] [V24]", async () => {
  const grandchild =
    "setInterval(() => undefined, 1000); process.on('SIGTERM', () => undefined); console.log('grandchild ' + process.pid)";
  const { child, line } = run(
    `process.on('SIGTERM', () => undefined); setInterval(() => undefined, 1000);
     require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(grandchild)}], { stdio: ['ignore', 'inherit', 'inherit'] });`,
  );
  const pid = Number((await line()).split(" ")[1]);
  await child.stop();
  assert.equal(isAlive(child.pid), false);
  // The kernel ends a killed process when it is scheduled, which may be later.
  await eventually("the grandchild has ended", () => !isAlive(pid));
});

test("processes that a child leaves behind are ended after it exits", async () => {
  const { child, line, exited } = run(
    `require('node:child_process').spawn(process.execPath, ['-e', 'console.log(process.pid); setInterval(() => undefined, 1000)'], { stdio: ['ignore', 'inherit', 'inherit'] });
     process.stdin.on('data', () => process.exit(0))`,
  );
  const pid = Number(await line());
  child.write("go");
  await exited;
  await child.stop();
  // The kernel ends a killed process when it is scheduled, which may be later.
  await eventually("the grandchild has ended", () => !isAlive(pid));
});

test("one endless line ends the child instead of filling the memory [R10]", async () => {
  const { child, exited } = run(
    "const b = Buffer.alloc(1 << 20, 97); const w = () => { while (process.stdout.write(b)); }; process.stdout.on('drain', w); w()",
  );
  assert.match(await exited, /a line is longer than/);
  await child.stop();
  assert.equal(isAlive(child.pid), false);
});

test("secrets of a child are redacted from its stderr and its exit reason", async () => {
  const { child, exited } = run("process.stderr.write('no given-secret\\nbad given-secret'); process.exitCode = 1");
  assert.match(await exited, /: bad <redacted>$/);
  assert.deepEqual(child.stderrLines(), ["no <redacted>", "bad <redacted>"]);
});

test("a flood on stderr is drained and only its last lines are kept [R12]", async () => {
  const { child, line } = run(
    "console.error(('e'.repeat(99) + '\\n').repeat(50000)); console.error('the end'); console.log('still here'); process.stdin.resume()",
  );
  assert.equal(await line(), "still here");
  // The output of an exited child is read only for a short time, so the child must still run.
  await eventually("the last line is read", () => child.stderrLines().at(-1) === "the end");
  assert.ok(child.stderrLines().length <= 21);
  await child.stop();
});

test("a child that does not read is noticed", async () => {
  const { child } = run("setInterval(() => undefined, 1000)");
  for (let i = 0; i < 60; i++) child.write("x".repeat(100_000));
  assert.equal(child.isOverloaded, true);
  child.kill("was stopped by the test");
  await child.stop();
});

test("a child that sends without reading is stopped before it exhausts memory", async () => {
  const { child, exited } = run("setInterval(() => undefined, 1000)");
  for (let i = 0; i < 1_000; i++) child.write("x".repeat(100_000));
  assert.equal(await exited, "was stopped because it does not read its input");
  await child.stop();
});

test("the memory of a running child is available", { skip: process.platform !== "linux" }, async () => {
  const { child, line } = run("console.log('up'); process.stdin.resume()");
  await line();
  assert.ok((child.memoryBytes() ?? 0) > 1_000_000);
  await child.stop();
  assert.equal(child.memoryBytes(), undefined);
});

function isAlive(pid: number | undefined): boolean {
  if (pid === undefined) return false;
  try {
    // A zombie of somebody else's is not alive either.
    return !execFileSync("ps", ["-o", "stat=", "-p", String(pid)])
      .toString()
      .startsWith("Z");
  } catch {
    return false;
  }
}

/** Every descriptor that the limit allows. */
function takeAll(): number[] {
  const taken: number[] = [];
  try {
    for (;;) taken.push(openSync("/dev/null", "r"));
  } catch {
    return taken;
  }
}

function hasPrlimit(): boolean {
  return process.platform === "linux" && spawnSync("prlimit", ["--version"]).status === 0;
}
