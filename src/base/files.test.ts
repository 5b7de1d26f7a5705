import assert from "node:assert/strict";
import * as fileSystem from "node:fs";
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { type TestContext, test } from "node:test";
import { createFile, type FileSystem, replaceFile } from "./files.ts";

const OLD = "the old content\n".repeat(40);
const CONTENTS = { shorter: "new\n", longer: "the new content, much longer\n".repeat(60), empty: "" };

function folderFor(t: TestContext): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "replace-")));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function failure(code: string): Error {
  return Object.assign(new Error(`${code}: test`), { code });
}

type Call = keyof FileSystem;
const everyCall: FileSystem = fileSystem;

/**
 * The real file system, except that `isFailing` can make a call fail. A failing write first writes half of its bytes.
 */
function faulty(isFailing: (call: Call, count: number) => string | undefined): FileSystem & { readonly calls: number } {
  let calls = 0;
  const wrapped: Record<string, unknown> = {};
  const names: Call[] = [
    "closeSync",
    "fchmodSync",
    "fchownSync",
    "fstatSync",
    "fsyncSync",
    "ftruncateSync",
    "openSync",
    "readFileSync",
    "realpathSync",
    "renameSync",
    "rmSync",
    "statSync",
    "writeSync",
  ];
  for (const name of names) {
    const real = everyCall[name] as (...args: unknown[]) => unknown;
    wrapped[name] = (...args: unknown[]) => {
      const code = isFailing(name, calls++);
      if (code === undefined) return real(...args);
      if (name === "writeSync") real(args[0], args[1], args[2], Math.floor((args[3] as number) / 2), args[4]);
      if (name === "closeSync") real(...args);
      throw failure(code);
    };
  }
  Object.defineProperty(wrapped, "calls", { get: () => calls });
  return wrapped as unknown as FileSystem & { readonly calls: number };
}

function leftovers(folder: string, file: string): string[] {
  return [folder, tmpdir()].flatMap((at) => readdirSync(at)).filter((name) => name.startsWith(`.${basename(file)}.`));
}

for (const [kind, content] of Object.entries(CONTENTS)) {
  for (const mount of [false, true]) {
    test(`whichever call fails, the file is old or new, never a mix: ${kind}${mount ? ", a mount point" : ""}`, (t) => {
      const folder = folderFor(t);
      const file = join(folder, `${basename(folder)}.yaml`);
      const mountFails = (call: Call) => (mount && call === "renameSync" ? "EBUSY" : undefined);
      writeFileSync(file, OLD);
      const probe = faulty(mountFails);
      replaceFile(file, content, probe);
      assert.equal(readFileSync(file, "utf8"), content);
      assert.ok(probe.calls > 6);
      for (let broken = 0; broken < probe.calls; broken++) {
        for (const code of ["ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES"]) {
          writeFileSync(file, OLD);
          let failed: Call | undefined;
          const fs = faulty((call, count) => {
            if (count === broken) failed = call;
            return count === broken ? code : mountFails(call);
          });
          let thrown = false;
          try {
            replaceFile(file, content, fs);
          } catch {
            thrown = true;
          }
          const what = `${code} in call ${broken} (${failed})`;
          assert.equal(readFileSync(file, "utf8"), thrown ? OLD : content, what);
          if (failed !== "rmSync") assert.deepEqual(leftovers(folder, file), [], what);
          for (const name of leftovers(folder, file)) {
            rmSync(join(folder, name), { force: true });
            rmSync(join(tmpdir(), name), { force: true });
          }
        }
      }
    });
  }
}

test("a disk that stays full preserves the old content, or the error names the copy", (t) => {
  const folder = folderFor(t);
  const file = join(folder, "config.yaml");
  writeFileSync(file, OLD);
  const full = faulty((call) => (call === "writeSync" ? "ENOSPC" : undefined));
  assert.throws(() => replaceFile(file, "new", full), { code: "ENOSPC" });
  assert.equal(readFileSync(file, "utf8"), OLD);

  // A mount point whose disk fails permanently in the middle of the write: only the copy remains.
  let writes = 0;
  const breaking = faulty((call) => {
    if (call === "renameSync") return "EBUSY";
    return call === "writeSync" && ++writes > 2 ? "EIO" : undefined;
  });
  let message = "";
  try {
    replaceFile(file, "new and longer".repeat(100), breaking);
  } catch (error) {
    message = (error as Error).message;
  }
  const copy = /its old content is in (\S+)$/.exec(message)?.[1];
  assert.ok(copy, message);
  assert.equal(readFileSync(copy, "utf8"), OLD);
});

test("mode and symbolic link are preserved; a new name becomes a file", (t) => {
  const folder = folderFor(t);
  const file = join(folder, "real.yaml");
  const link = join(folder, "link.yaml");
  writeFileSync(file, OLD);
  fileSystem.chmodSync(file, 0o640);
  symlinkSync(file, link);
  replaceFile(link, "new");
  assert.equal(readFileSync(file, "utf8"), "new");
  assert.equal(fileSystem.lstatSync(link).isSymbolicLink(), true);
  assert.equal(statSync(file).mode & 0o777, 0o640);
  replaceFile(join(folder, "fresh"), Buffer.from("fresh"));
  assert.equal(readFileSync(join(folder, "fresh"), "utf8"), "fresh");
});

test("the owner is preserved", { skip: process.getuid?.() !== 0 && "only root can give files away" }, (t) => {
  const file = join(folderFor(t), "config.yaml");
  writeFileSync(file, OLD);
  fileSystem.chownSync(file, 12_345, 23_456);
  replaceFile(file, "new");
  assert.deepEqual([statSync(file).uid, statSync(file).gid], [12_345, 23_456]);
});

test("a device is written directly", () => {
  replaceFile("/dev/null", "new");
  assert.equal(statSync("/dev/null").isCharacterDevice(), true);
  assert.throws(() => replaceFile("/dev/full", "new"), { code: "ENOSPC" });
});

test("a new file is complete or absent, and never replaces another file", (t) => {
  const file = join(folderFor(t), "profile");
  const full = faulty((call) => (call === "writeSync" ? "ENOSPC" : undefined));
  assert.throws(() => createFile(file, "content", full), { code: "ENOSPC" });
  assert.equal(fileSystem.existsSync(file), false);
  createFile(file, "content");
  assert.throws(() => createFile(file, "other"), { code: "EEXIST" });
  assert.equal(readFileSync(file, "utf8"), "content");
});
