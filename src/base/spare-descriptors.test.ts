import assert from "node:assert/strict";
import { test } from "node:test";
import { checkSpareDescriptors } from "./file-descriptors.ts";

/** A system that allows `left` descriptors to be opened and then fails with the code. */
function system(left: number, code: string) {
  const open = new Set<number>();
  return {
    open,
    check: () =>
      checkSpareDescriptors(
        () => {
          if (open.size >= left) throw Object.assign(new Error(code), { code });
          open.add(open.size + 10);
          return open.size + 9;
        },
        (descriptor) => assert.ok(open.delete(descriptor)),
      ),
  };
}

for (let left = 0; left < 12; left++) {
  test(`${left} descriptors ${left < 8 ? "are too few for a start" : "are enough"}, and none stays open`, () => {
    const { open, check } = system(left, "EMFILE");
    if (left < 8) assert.throws(check, { code: "EMFILE", message: "too many files are open (EMFILE)" });
    else check();
    assert.equal(open.size, 0);
  });
}

test("a system without the file that the check opens passes", () => {
  system(0, "ENOENT").check();
  assert.throws(system(3, "ENFILE").check, { code: "ENFILE" });
});

test("this process has spare descriptors", () => checkSpareDescriptors());
