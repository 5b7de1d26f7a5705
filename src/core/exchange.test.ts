import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../test/support/exchange.ts";
import { StateKey } from "./exchange.ts";

test("each key has its own value in each exchange", () => {
  const [first, second] = [anExchange(), anExchange()];
  const keys = Array.from({ length: 5 }, () => new StateKey<string>());
  for (const [i, key] of keys.entries()) first.setState(key, `value ${i}`);
  assert.deepEqual(
    keys.map((key) => [first.state(key), second.state(key)]),
    keys.map((_key, i) => [`value ${i}`, undefined]),
  );
});

test("a later value replaces an earlier one, and a value that is a key does not change another key's value", () => {
  const exchange = anExchange();
  const name = new StateKey<string>();
  const key = new StateKey<StateKey<string>>();
  exchange.setState(key, name);
  assert.equal(exchange.state(name), undefined);
  exchange.setState(name, "a");
  exchange.setState(name, "b");
  const last = new StateKey<string>();
  exchange.setState(last, "c");
  assert.deepEqual([exchange.state(key), exchange.state(name), exchange.state(last)], [name, "b", "c"]);
});
