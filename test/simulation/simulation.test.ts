/**
 * Runs fixed seeds, checks that a seed gives the same run in every process, and that nothing real can be reached.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { START_MS } from "./isolate.ts";

/** Seeds that have found bugs are kept here, with the bug. */
const SEEDS = [
  { seed: 1, minutes: 8 },
  { seed: 2, minutes: 8 },
  // The old process of an upgrade did not close its in-memory store.
  { seed: 4, minutes: 8 },
  // Worker threads.
  { seed: 9, minutes: 8 },
  // A Kubernetes cluster.
  { seed: 21, minutes: 8 },
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

async function simulate(seed: number, minutes: number, cwd?: string): Promise<Result> {
  const { cpuMs: _, ...result } = JSON.parse(
    await run("bundle/main.js", ["--seed", `${seed}`, "--hours", `${minutes / 60}`, "--clients", "80"], cwd),
  );
  return result;
}

for (const { seed, minutes } of SEEDS)
  test(`no invariant is broken with seed ${seed}`, async () => {
    const { broken, requests, statuses } = await simulate(seed, minutes);
    assert.equal(broken, undefined);
    assert.ok(requests > 50, `${requests} requests`);
    assert.ok((statuses[200] ?? 0) > 20 && (statuses[401] ?? 0) > 0, JSON.stringify(statuses));
  });

test("a seed gives the same run in two processes and folders, and another seed another", async () => {
  const [first, second, other] = await Promise.all([simulate(5, 1), simulate(5, 1, tmpdir()), simulate(6, 1)]);
  assert.deepEqual(first, second);
  assert.notEqual(first.digest, other.digest);
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
