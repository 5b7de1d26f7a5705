import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Linked, LinkedList } from "./linked-list.ts";

class Item implements Linked<Item> {
  next: Item | undefined = undefined;
  previous: Item | undefined = undefined;
  readonly name: number;

  constructor(name: number) {
    this.name = name;
  }
}

function names(list: LinkedList<Item>): number[] {
  const found: number[] = [];
  list.each((item) => found.push(item.name));
  return found;
}

test("the list behaves like a set in order of insertion, whatever is added and removed", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), fc.nat(9))), (steps) => {
      const list = new LinkedList<Item>();
      const items = Array.from({ length: 10 }, (_, i) => new Item(i));
      const model = new Set<number>();
      for (const [isAdd, i] of steps) {
        if (isAdd && !model.has(i)) {
          list.add(items[i] as Item);
          model.add(i);
        } else if (!isAdd) {
          list.remove(items[i] as Item);
          model.delete(i);
        }
        assert.deepEqual(names(list), [...model]);
        assert.equal(list.size, model.size);
        assert.equal(list.last?.name, [...model].at(-1));
      }
    }),
  );
});

test("members may be removed while the list is iterated", () => {
  const list = new LinkedList<Item>();
  for (let i = 0; i < 5; i++) list.add(new Item(i));
  list.each((item) => {
    if (item.name % 2 === 0) list.remove(item);
  });
  assert.deepEqual(names(list), [1, 3]);
  assert.equal(list.find((item) => item.name === 3)?.name, 3);
  assert.equal(
    list.find((item) => item.name === 4),
    undefined,
  );
});
