/**
 * Which slot holds the bucket of which key, for buckets of one thread: a map, and the keys by slot.
 */
import { NO_SLOT } from "./slot-lists.ts";

export interface BucketKeys {
  slotOf(key: string): number;
  /** The key that a slot holds; undefined for the shared slot. */
  keyAt(slot: number): string | undefined;
  set(slot: number, key: string): void;
  /** The slot's key is found no more. */
  remove(slot: number): void;
}

export class OwnKeys implements BucketKeys {
  readonly #slotOf = new Map<string, number>();
  readonly #keys: (string | undefined)[] = [undefined];

  slotOf(key: string): number {
    return this.#slotOf.get(key) ?? NO_SLOT;
  }

  keyAt(slot: number): string | undefined {
    return this.#keys[slot];
  }

  set(slot: number, key: string): void {
    const copy = copied(key);
    this.#slotOf.set(copy, slot);
    this.#keys[slot] = copy;
  }

  remove(slot: number): void {
    this.#slotOf.delete(this.#keys[slot] as string);
  }
}

/**
 * The key may be a slice of a large header, which it would keep alive: the store holds a copy. Through UTF-8 the copy
 * of an ASCII key takes one byte per character; what UTF-8 cannot express goes through UTF-16.
 */
function copied(key: string): string {
  const copy = Buffer.from(key, "utf8").toString("utf8");
  return copy === key ? copy : Buffer.from(key, "utf16le").toString("utf16le");
}
