import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { boundedLabel, createMetrics, cumulativeFamilies, mergeFamilies } from "./metrics.ts";

test("label values find their own series, even if they resemble the text of others", () => {
  const metrics = createMetrics();
  const family = metrics.counter("c", "Help.", ["a", "b"]);
  const values = [
    ["1", "2"],
    ["1", ""],
    ["", "1"],
    ['1",b="2', ""],
    ["1\n", "2"],
    ["__proto__", "2"],
  ];
  for (const [i, pair] of values.entries()) {
    family.labels(...pair).add(i + 1);
    family.labels(...pair).add(i + 1);
    assert.equal(family.labels(...pair).value, 2 * (i + 1));
  }
  family.labels("1").add(10);
  assert.equal(family.labels("1", "").value, 14);
  assert.equal(metrics.collect()[0]?.points.length, values.length);
  assert.match(metrics.render(), /^c\{a="1\\",b=\\"2",b=""\} 8$/m);
});

/** Reads the labels of a line as the text format of Prometheus defines them. */
function labelsOf(line: string): Record<string, string> {
  const labels: Record<string, string> = Object.create(null);
  const text = line.slice(line.indexOf("{") + 1);
  const label = /([a-z]+)="((?:[^"\\\n]|\\["\\n])*)"(,|\} 1$)/y;
  while (label.lastIndex < text.length) {
    const [, name = "", value = ""] = label.exec(text) ?? assert.fail(`not the text format: ${line}`);
    labels[name] = value.replace(/\\(.)/g, (_, char: string) => (char === "n" ? "\n" : char));
  }
  return labels;
}

test("the text format has each label value unchanged, and no others", () => {
  const value = fc.array(fc.constantFrom("\\", '"', "\n", "\r", ",", "}", "=", " ", "a", "n", "é"), { maxLength: 8 });
  fc.assert(
    fc.property(value, value, (one, two) => {
      const metrics = createMetrics();
      const labels = { one: one.join(""), two: two.join("") };
      metrics.counter("c", "Help.", ["one", "two"]).labels(labels.one, labels.two).add();
      const [line = ""] = metrics
        .render()
        .split("\n")
        .filter((text) => text.startsWith("c{"));
      assert.deepEqual({ ...labelsOf(line) }, labels);
    }),
    { numRuns: 2_000 },
  );
});

test("beyond the limit one series counts the rest", () => {
  const family = createMetrics().counter("c", "Help.", ["a"]);
  for (let i = 0; i < 10_000; i++) family.labels(String(i)).add();
  family.labels("new").add();
  family.labels("newer").add();
  assert.equal(family.labels("other").value, 2);
  assert.equal(family.labels("newer"), family.labels("new"));
  assert.equal(family.labels("7").value, 1);
});

test("a long label value is `other`, and does not stay in memory", () => {
  const metrics = createMetrics();
  const family = metrics.counter("c", "Help.", ["a", "b"]);
  for (let i = 0; i < 100; i++) family.labels(`${i}`.repeat(10_000), "1").add();
  assert.equal(family.labels("other", "1").value, 100);
  assert.equal(metrics.collect()[0]?.points.length, 1);
});

test("a chosen label value keeps its label while it is short and among the first", () => {
  const label = boundedLabel(3);
  assert.deepEqual(["a", "b", "x".repeat(201), "c", "d", "a"].map(label), ["a", "b", "other", "c", "other", "a"]);
});

function thread(requests: number, seconds: readonly number[]) {
  const metrics = createMetrics();
  const counter = metrics.counter("requests_total", "Requests.", ["route"]);
  counter.labels("a").add(requests);
  if (requests > 1) counter.labels("b").add(1);
  const histogram = metrics.histogram("seconds", "Seconds.", [1, 10]).labels();
  for (const value of seconds) histogram.observe(value);
  metrics.gauge("connections", "Connections.", () => requests);
  return metrics.collect();
}

test("points with the same labels are added, with their buckets", () => {
  assert.deepEqual(mergeFamilies([thread(1, [0.5, 20]), thread(2, [5])]), [
    {
      name: "requests_total",
      help: "Requests.",
      type: "counter",
      points: [
        { labels: { route: "a" }, value: 3 },
        { labels: { route: "b" }, value: 1 },
      ],
    },
    {
      name: "seconds",
      help: "Seconds.",
      type: "histogram",
      points: [{ labels: {}, value: 25.5, buckets: { bounds: [1, 10], counts: [1, 1, 1] } }],
    },
    { name: "connections", help: "Connections.", type: "gauge", points: [{ labels: {}, value: 3 }] },
  ]);
});

test("gauges of a thread that ended do not stay", () => {
  assert.deepEqual(
    cumulativeFamilies(thread(1, [])).map(({ name }) => name),
    ["requests_total", "seconds"],
  );
  assert.deepEqual(mergeFamilies([]), []);
});
