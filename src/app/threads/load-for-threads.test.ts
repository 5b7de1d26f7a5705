import assert from "node:assert/strict";
import { test } from "node:test";
import { type Surroundings, threadCount } from "./load-for-threads.ts";

const here: Surroundings = {
  platform: "linux",
  node: "22.12.0",
  cores: 8,
  canStart: true,
  hasInheritedSockets: false,
};

test("one thread unless the configuration asks for more", () => {
  assert.deepEqual(threadCount({}, here), { count: 1 });
  assert.deepEqual(threadCount({ workers: 1 }, here), { count: 1 });
  assert.deepEqual(threadCount({ workers: 4 }, here), { count: 4 });
  assert.deepEqual(threadCount({ workers: "auto" }, here), { count: 8 });
});

const obstacles: [what: Partial<Surroundings>, said: RegExp][] = [
  [{ platform: "darwin" }, /Linux only/],
  [{ node: "20.20.2" }, /Node 22\.12 or newer only, and this is 20\.20\.2/],
  [{ node: "22.11.9" }, /22\.12/],
  [{ node: "23.0.0" }, /22\.12/],
  [{ hasInheritedSockets: true }, /service manager/],
  [{ canStart: false }, /single executable/],
];
for (const [what, said] of obstacles) {
  test(`${JSON.stringify(what)}: one thread serves, and whoever asked for a number is told why`, () => {
    const { count, warning = "" } = threadCount({ workers: 4 }, { ...here, ...what });
    assert.equal(count, 1);
    assert.match(warning, said);
    const auto = threadCount({ workers: "auto" }, { ...here, ...what });
    assert.deepEqual([auto.count, auto.warning], [1, undefined]);
    assert.match(auto.note ?? "", said);
  });
}

for (const node of ["22.12.0", "22.30.1", "23.1.0", "24.0.0", "26.10.0"])
  test(`Node ${node} can`, () => assert.equal(threadCount({ workers: 2 }, { ...here, node }).count, 2));
