/**
 * Runs fixed seeds, checks that a seed gives the same run in every process, and that nothing real can be reached.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { START_MS } from "./isolate.ts";

const MINUTES = 8;

/** What the run of a seed has that others do not have, or the bug that it has found. */
const SEEDS = [
  { seed: 4, covers: "the old process of an upgrade did not close its in-memory store" },
  { seed: 9, covers: "worker threads" },
  { seed: 21, covers: "a Kubernetes cluster" },
];

const folder = fileURLToPath(new URL(".", import.meta.url));

before(async () => {
  const { bundle } = await import(pathToFileURL(join(process.cwd(), "test/simulation/bundle.mjs")).href);
  await bundle(join(folder, "bundle"));
});

function run(file: string, args: readonly string[], cwd = process.cwd()): Promise<string> {
  const path = join(folder, file);
  const child = spawn(process.execPath, ["--no-deprecation", path, ...args], {
    cwd,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.on("data", (text) => {
    output += text;
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", () => resolve(output));
  });
}

interface Result {
  readonly digest: string;
  readonly broken?: string;
  readonly requests: number;
  readonly statuses: Readonly<Record<string, number>>;
}

async function simulate(seed: number, cwd?: string): Promise<Result> {
  const args = ["--seed", `${seed}`, "--hours", `${MINUTES / 60}`, "--clients", "40"];
  const { cpuMs: _, ...result } = JSON.parse(await run("bundle/main.js", args, cwd));
  return result;
}

function checkResult({ broken, requests, statuses }: Result): void {
  assert.equal(broken, undefined);
  assert.ok(requests > 50, `${requests} requests`);
  assert.ok((statuses[200] ?? 0) > 20 && (statuses[401] ?? 0) > 0, JSON.stringify(statuses));
}

for (const { seed, covers } of SEEDS)
  test(`no invariant is broken with seed ${seed}: ${covers}`, async () => checkResult(await simulate(seed)));

test("a seed gives the same run in two processes and folders, and another seed another", async () => {
  const [first, second, other] = await Promise.all([simulate(1), simulate(1, tmpdir()), simulate(2)]);
  assert.deepEqual(first, second);
  assert.notEqual(first.digest, other.digest);
  checkResult(first);
  checkResult(other);
});

test("no real timer, socket, file, process, thread or random number can be reached", async (t) => {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const args = [String((server.address() as AddressInfo).port)];
  const [text, again] = await Promise.all([run("probe.js", args), run("probe.js", args)]);
  const { closed, missing, events, times, realWork } = JSON.parse(text);
  for (const [name, result] of Object.entries(closed)) assert.match(String(result), /is not simulated$/, name);
  assert.deepEqual(missing, {
    "fs.readFileSync": "open ENOENT",
    "fs.openSync": "open ENOENT",
    "fs.writeSync": "write EBADF",
    "child_process.spawn": "spawn ENOENT",
    "process.kill": "kill ESRCH",
  });
  assert.deepEqual(times, [START_MS, START_MS, 0, 0, 0]);
  assert.deepEqual(realWork, []);
  assert.equal(events.includes("before the virtual clock moved"), false);
  for (const event of [
    "timeout",
    "timers.setTimeout",
    "interval",
    "immediate",
    "connect ECONNREFUSED",
    "tls connect ECONNREFUSED",
  ])
    assert.ok(events.includes(event), event);
  assert.equal(connections, 0);
  assert.equal(text, again);
});

test("invalid flags are rejected instead of simulating nothing", () => {
  for (const [name, value] of [
    ["seed", "a"],
    ["seed", "1.5"],
    ["hours", "0"],
    ["hours", "Infinity"],
    ["run-hours", "0"],
    ["jobs", "0"],
    ["clients", ""],
    ["first-client", "100"],
    ["faults", "1,99"],
    ["unknown", "1"],
  ]) {
    const args = ["scripts/simulate.mjs", `--${name}=${value}`];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
    assert.equal(status, 2, args.join(" "));
    assert.match(stderr, new RegExp(`^.*--${name}.*\\n$`));
  }
});
