/**
 * The folder store and its files: nothing that resolved is lost when the process is killed, damaged files are read as far
 * as they go, files are compacted, and one process at a time uses a folder.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { systemClock } from "../../src/base/clock.ts";
import type { Logger } from "../../src/record/log/logger.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { openFolderStore } from "../../src/store/folder-store.ts";
import { type Store, StoreUnavailable } from "../../src/store/store.ts";
import { eventually } from "../support/eventually.ts";
import { gatewayFor } from "../support/scenario.ts";

const WRITER = fileURLToPath(new URL("../support/store/folder-writer.js", import.meta.url));
const UNREAPED_WRITER = fileURLToPath(new URL("../support/store/unreaped-writer.js", import.meta.url));

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "store-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function openFor(t: TestContext, folder: string, logger: Logger = silentLogger): Promise<Store> {
  const store = await openFolderStore(folder, { clock: systemClock, logger });
  t.after(() => store.close());
  return store;
}

test("killed again and again while it writes and compacts, it has everything that resolved", async (t) => {
  const folder = folderFor(t);
  let told = 0;
  for (let round = 0; round < 4; round++) {
    const child = spawn(process.execPath, [WRITER, folder], { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    const ended = new Promise((resolve) => child.once("close", resolve));
    let text = "";
    let lines = 0;
    child.stdout.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      lines += 1;
      if (text.length > 60 * (round + 1)) child.kill("SIGKILL");
    });
    await ended;
    assert.ok(lines > 0);
    const whole = text.slice(0, text.lastIndexOf("\n")).split("\n");
    told = Number(whole.at(-1));
    const store = await openFolderStore(folder, { clock: systemClock, logger: silentLogger });
    const { total } = await store.add("counter", 0);
    assert.ok(total >= told, `${total} of ${told}`);
    for (const line of whole) assert.equal(await store.get(`at${line}`), "1", `at${line}`);
    await store.close();
  }
  const names = readdirSync(folder).sort();
  assert.ok(
    names.some((name) => /^snapshot\.\d+$/.test(name)),
    `it was compacted: ${names}`,
  );
  const bytes = names.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  assert.ok(bytes < 20 * 1024 * 1024, `${bytes} bytes for ${told} counts`);
});

test("a record that was cut off is left out, and what follows in later processes is read", async (t) => {
  const folder = folderFor(t);
  const first = await openFolderStore(folder, { clock: systemClock, logger: silentLogger });
  await first.set("kept", "1");
  await first.close();
  appendFileSync(join(folder, "journal.1"), '12345678 ["cut","off');
  const warned: string[] = [];
  const second = await openFolderStore(folder, { clock: systemClock, logger: recording(warned) });
  assert.deepEqual(warned, ["warn the last record was incomplete and was left out"]);
  assert.equal(await second.get("cut"), undefined);
  await second.set("later", "2");
  await second.close();
  const third = await openFor(t, folder);
  assert.deepEqual([await third.get("kept"), await third.get("later")], ["1", "2"]);
});

test("damaged records are left out and counted, the others are read", async (t) => {
  const folder = folderFor(t);
  const first = await openFolderStore(folder, { clock: systemClock, logger: silentLogger });
  for (const key of ["a", "b", "c"]) await first.set(key, "1");
  await first.close();
  const file = join(folder, "journal.1");
  writeFileSync(file, readFileSync(file, "utf8").replace('["b"', '["B"'));
  const warned: string[] = [];
  const second = await openFor(t, folder, recording(warned));
  assert.deepEqual(warned, ["error damaged records were left out"]);
  assert.deepEqual(
    [await second.get("a"), await second.get("b"), await second.get("B"), await second.get("c")],
    ["1", undefined, undefined, "1"],
  );
});

test("its files are readable by their owner only", async (t) => {
  const folder = join(folderFor(t), "made", "here");
  const store = await openFor(t, folder);
  await store.set("a", "1");
  await store.sync();
  assert.equal(statSync(folder).mode & 0o777, 0o700);
  for (const name of readdirSync(folder)) assert.equal(statSync(join(folder, name)).mode & 0o777, 0o600, name);
});

test("a folder in use is refused; one whose owner is gone is taken over", async (t) => {
  const folder = folderFor(t);
  const first = await openFolderStore(folder, { clock: systemClock, logger: silentLogger });
  await assert.rejects(
    openFolderStore(folder, { clock: systemClock, logger: silentLogger }),
    /is in use by process \d+$/,
  );
  await first.close();
  writeFileSync(join(folder, "lock"), JSON.stringify({ pid: process.pid, started: "1", place: "another place" }));
  await assert.rejects(openFolderStore(folder, { clock: systemClock, logger: silentLogger }), /on another machine/);
  // A process with this number, but another start: it is a later one.
  rmSync(join(folder, "lock"));
  const probe = await openFolderStore(folder, { clock: systemClock, logger: silentLogger });
  const own = JSON.parse(readFileSync(join(folder, "lock"), "utf8"));
  await probe.close();
  writeFileSync(join(folder, "lock"), JSON.stringify({ ...own, started: "1" }));
  await openFor(t, folder);
});

test("the folder of a killed process is taken over before its parent has waited for it", {
  skip: process.platform !== "linux" && "needs /proc",
}, async (t) => {
  const folder = folderFor(t);
  const parent = spawn(process.execPath, [UNREAPED_WRITER, folder], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => parent.once("close", resolve));
  t.after(async () => {
    parent.stdin.end();
    await ended;
  });
  const [printed] = (await once(parent.stdout, "data")) as [Buffer];
  const pid = Number(printed.toString());
  const state = (): string => readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "")[0] as string;
  await assert.rejects(openFolderStore(folder, { clock: systemClock, logger: silentLogger }), /is in use by process/);
  process.kill(pid, "SIGKILL");
  await eventually("the killed process is a zombie", () => state() === "Z");
  const store = await openFor(t, folder);
  assert.ok((await store.add("counter", 0)).total > 0);
  assert.equal(state(), "Z", "the owner is still a zombie");
});

test("whoever lost the folder to another process writes nothing more", async (t) => {
  const folder = folderFor(t);
  const store = await openFor(t, folder);
  await store.set("a", "1");
  rmSync(join(folder, "lock"));
  writeFileSync(join(folder, "lock"), "somebody else's");
  const before = readFileSync(join(folder, "journal.1"), "utf8");
  await assert.rejects(store.set("a", "2"), StoreUnavailable);
  await assert.rejects(store.sync(), StoreUnavailable);
  assert.equal(readFileSync(join(folder, "journal.1"), "utf8"), before);
  assert.deepEqual(store.health(), { state: "degraded", reason: "another process took the folder over" });
});

test("the folder is relative to the configuration file, and a gateway whose folder is in use does not start", async (t) => {
  const yaml =
    "config: { adminAddr: 'off', store: { folder: state } }\ngateways: { default: { port: 0 } }\nroutes: [{}]\n";
  const gateway = await gatewayFor(t, yaml);
  const folder = join(gateway.folder, "state");
  assert.ok(readdirSync(folder).includes("journal.1"));
  await assert.rejects(
    gatewayFor(t, yaml.replace("folder: state", `folder: ${folder}`)),
    /config\.store: .*in use by process/,
  );
});

function recording(lines: string[]): Logger {
  const write = (level: string) => (message: string) => void lines.push(`${level} ${message}`);
  return { ...silentLogger, warn: write("warn"), error: write("error") };
}
