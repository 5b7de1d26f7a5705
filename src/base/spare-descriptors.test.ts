import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../../test/support/random.ts";
import { FileDescriptors, fileDescriptors, shortageCode } from "./file-descriptors.ts";

const RESERVED = 24;
const RESERVED_FOR_FILES = 12;

/** A process in which \`inUse\` descriptors are open, with a limit. */
function system(
  inUse: number,
  limit: number | undefined,
  code = "EMFILE",
  failsAt = limit ?? Number.POSITIVE_INFINITY,
) {
  const open = new Set(Array.from({ length: inUse }, (_, i) => i));
  let counts = 0;
  let lowest = 0;
  return {
    open,
    counts: () => counts,
    limit: () => limit,
    lowest(): number {
      if (open.size >= failsAt) throw Object.assign(new Error(code), { code });
      while (open.has(lowest)) lowest += 1;
      open.add(lowest);
      return lowest;
    },
    remove(descriptor: number): boolean {
      if (!open.delete(descriptor)) return false;
      lowest = Math.min(lowest, descriptor);
      return true;
    },
    descriptors() {
      return new FileDescriptors({
        limit: () => limit,
        open: () => {
          counts += 1;
          return this.lowest();
        },
        close: (descriptor) => assert.ok(this.remove(descriptor)),
      });
    },
  };
}

for (let left = 0; left < 36; left++) {
  const isEnough = left >= RESERVED + 8;
  test(`${left} descriptors ${isEnough ? "are enough" : "are too few"} for a child, and none stays open`, () => {
    const process = system(1_024 - left, 1_024);
    const check = () => process.descriptors().checkChild();
    if (isEnough) check();
    else assert.throws(check, { code: "EMFILE", message: "too many files are open (EMFILE)" });
    assert.equal(process.open.size, 1_024 - left);
  });
}

test("a system without the file that the check opens passes, and one that is full does not", () => {
  const none = system(10, undefined, "ENOENT", 10).descriptors();
  none.checkChild();
  assert.equal(none.connectionFault(0), undefined);
  const full = system(10, 1_024, "ENFILE", 10).descriptors();
  assert.throws(() => full.checkChild(), { code: "ENFILE" });
  assert.equal(shortageCode(full.connectionFault(0)), "ENFILE");
});

test("without a limit, nothing is refused", () => {
  const { connectionFault, mayAccept } = {
    connectionFault: (others: number) => descriptors.connectionFault(others),
    mayAccept: (descriptor: number) => descriptors.mayAccept(descriptor),
  };
  const descriptors = system(5_000, undefined).descriptors();
  for (let i = 0; i < 1_000; i++) assert.equal(connectionFault(i), undefined);
  assert.equal(mayAccept(1_000_000), true);
});

const LIMITS = [128, 200, 256, 1_024, 4_096];

test("connections of one target, of many targets, and of clients stop in this order and leave room for files", () => {
  for (const limit of LIMITS) {
    const process = system(30, limit);
    const descriptors = process.descriptors();
    const connect = (others: number): boolean => {
      if (descriptors.connectionFault(others) !== undefined) return false;
      process.lowest();
      return true;
    };
    let ofOne = 0;
    while (connect(ofOne)) ofOne += 1;
    const left = Math.min(64, Math.floor(limit / 16));
    assert.ok(
      limit - process.open.size >= Math.min(left, limit - 46) + RESERVED,
      `limit ${limit}: ${process.open.size}`,
    );
    let ofOthers = 0;
    while (connect(0)) ofOthers += 1;
    assert.ok(ofOthers >= Math.floor(left / 2), `limit ${limit}: ${ofOthers} of other targets`);
    assert.ok(limit - process.open.size >= RESERVED);
    while (descriptors.mayAccept(process.lowest()));
    assert.equal(limit - process.open.size, RESERVED_FOR_FILES - 1);
    assert.throws(() => descriptors.checkChild(), { code: "EMFILE" });
  }
});

test("100 random runs: connections never use the reserve, and the descriptors are rarely counted", () => {
  for (let seed = 0; seed < 100; seed++) {
    const random = new Random(seed);
    const limit = 100 + random.int(1_000);
    const process = system(40, limit);
    const descriptors = process.descriptors();
    const opened: number[] = [];
    const waiting: (() => void)[] = [];
    for (let i = 0; i < 500; i++) {
      if (random.int(3) > 0 && descriptors.connectionFault(random.int(64)) === undefined) {
        // The descriptor of a connection to a name is assigned later.
        if (random.int(4) === 0) waiting.push(descriptors.connecting());
        else opened.push(process.lowest());
      } else if (random.int(2) === 0) process.remove(opened.splice(random.int(opened.length), 1)[0] ?? -1);
      else {
        waiting.pop()?.();
        if (waiting.length > 0 && random.int(2) === 0) opened.push(process.lowest());
      }
      assert.ok(process.open.size <= limit - RESERVED_FOR_FILES, `seed ${seed}: ${process.open.size} of ${limit}`);
    }
  }
  const large = system(40, 1_000_000);
  const descriptors = large.descriptors();
  for (let i = 0; i < 10_000; i++) assert.equal(descriptors.connectionFault(i), undefined);
  assert.equal(large.counts(), 1);
});

test("this process has spare descriptors", () => {
  fileDescriptors.checkChild();
  assert.equal(fileDescriptors.connectionFault(0), undefined);
});
