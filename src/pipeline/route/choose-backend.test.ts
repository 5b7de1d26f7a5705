import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import type { Route, WeightedBackend } from "../../core/topology.ts";
import { chooseBackend, chooseBySession } from "./match-route.ts";

function weighted(...weights: number[]): Route {
  const backends = weights.map(
    (weight, i) => ({ weight, backend: { attributes: { name: String(i) } } }) as unknown as WeightedBackend,
  );
  return { backends, totalWeight: weights.reduce((sum, weight) => sum + weight, 0) } as unknown as Route;
}

const cases: [weights: number[], random: number, chosen: string | undefined][] = [
  [[1], 0.5, "0"],
  [[1, 1], 0, "0"],
  [[1, 1], 0.4999, "0"],
  [[1, 1], 0.5, "1"],
  [[9, 1], 0.89, "0"],
  [[9, 1], 0.9, "1"],
  [[0, 1], 0, "1"],
  [[1, 0], 0.9999999, "0"],
  [[0, 0], 0.5, undefined],
  [[0], 0.5, undefined],
  [[], 0.5, undefined],
];
for (const [weights, random, chosen] of cases) {
  test(`of the weights [${weights}], ${random} chooses ${chosen ?? "none"}`, () => {
    assert.equal(chooseBackend(weighted(...weights), () => random)?.backend.attributes.name, chosen);
  });
}

test("skips ejected backends unless there is no other", () => {
  const route = (weights: number[], resting: number[]): Route => {
    const plain = weighted(...weights);
    const backends = plain.backends.map((one, i) => ({
      ...one,
      backend: { ...one.backend, routing: { health: { isEjected: resting.includes(i) } } },
    }));
    return { ...plain, backends } as Route;
  };
  const chosen = (weights: number[], resting: number[], random: number): string | undefined =>
    chooseBackend(route(weights, resting), () => random)?.backend.attributes.name;
  assert.equal(chosen([1, 1], [0], 0), "1");
  assert.equal(chosen([1, 1], [1], 0.999), "0");
  assert.equal(chosen([1, 1, 2], [2], 0.6), "1");
  assert.equal(chosen([1, 1], [0, 1], 0), "0");
  assert.equal(chosen([1, 0], [0], 0), "0", "a weight of 0 is no other");
  assert.equal(chosen([1], [0], 0.5), "0");
});

test("a session keeps its backend unless it is ejected and another is available", () => {
  const chosen = (weights: number[], ejected: number[], index: number | undefined): string | undefined => {
    const plain = weighted(...weights);
    const sessions = { find: () => (index === undefined ? undefined : { index, address: "10.0.0.1:80" }) };
    const backends = plain.backends.map((one, i) => ({
      ...one,
      backend: { ...one.backend, routing: { health: { isEjected: ejected.includes(i) } } },
    }));
    const route = { ...plain, backends, policies: { settings: { sessions } } } as unknown as Route;
    const exchange = anExchange();
    const name = chooseBySession(route, exchange)?.backend.attributes.name;
    assert.equal(exchange.upstream.preferred, name === undefined ? undefined : "10.0.0.1:80");
    return name;
  };
  assert.equal(chosen([1, 1], [], undefined), undefined);
  assert.equal(chosen([1, 1], [], 1), "1");
  assert.equal(chosen([1, 0], [], 1), "1", "a weight of 0");
  assert.equal(chosen([1, 1], [1], 1), undefined, "another is available");
  assert.equal(chosen([1, 1], [0, 1], 1), "1", "all are ejected");
  assert.equal(chosen([0, 1], [1], 1), "1", "a weight of 0 is no other");
  assert.equal(chosen([1], [], 3), undefined, "no such backend");
});
