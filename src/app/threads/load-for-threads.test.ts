import assert from "node:assert/strict";
import { test } from "node:test";
import { type Surroundings, threadCount } from "./load-for-threads.ts";

const here: Surroundings = {
  platform: "linux",
  node: "22.12.0",
  cores: 8,
  isCluster: false,
  canStart: true,
  hasInheritedSockets: false,
  previousThreads: 0,
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
  [{ canStart: false }, /this program has one thread/],
  [{ isCluster: true, canStart: false }, /Kubernetes/],
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

test("an upgrade keeps the number of threads of the previous process", () => {
  const { note = "", ...kept } = threadCount({ workers: 4 }, { ...here, previousThreads: 2 });
  assert.deepEqual(kept, { count: 2 });
  assert.match(note, /keeps the number of threads, 2; restart to use 4/);
  assert.equal(threadCount({ workers: 1 }, { ...here, previousThreads: 2 }).count, 2);
  assert.equal(threadCount({ workers: "auto" }, { ...here, previousThreads: 1 }).count, 1);
  assert.deepEqual(threadCount({ workers: 2 }, { ...here, previousThreads: 2 }), { count: 2 });
  assert.deepEqual(threadCount({}, { ...here, previousThreads: 1 }), { count: 1 });
  assert.deepEqual(threadCount({}, { ...here, node: "20.20.2", previousThreads: 2 }), { count: 1 });
});

for (const node of ["22.12.0", "22.30.1", "23.1.0", "24.0.0", "26.10.0"])
  test(`Node ${node} can`, () => assert.equal(threadCount({ workers: 2 }, { ...here, node }).count, 2));
