/**
 * The names of an object that has many. A set of a million grows by moving all of them at once, which takes a tenth of a
 * second; many small ones, chosen by a hash that nobody outside can foresee, grow one by one.
 */
import { randomInt } from "node:crypto";

const SHARDS = 256;
/** Objects with fewer names need only one set. */
const FEW = 4_096;
const SEED = randomInt(2 ** 31);

export class ManyNames {
  readonly #few = new Set<string>();
  #shards: Set<string>[] | undefined = undefined;

  add(name: string): void {
    if (this.#few.size < FEW) this.#few.add(name);
    else {
      this.#shards ??= Array.from({ length: SHARDS }, () => new Set<string>());
      this.#shards[shardOf(name)]?.add(name);
    }
  }

  has(name: string): boolean {
    return this.#few.has(name) || this.#shards?.[shardOf(name)]?.has(name) === true;
  }
}

function shardOf(name: string): number {
  let hash = SEED;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return (hash ^ (hash >>> 15)) & (SHARDS - 1);
}
