/**
 * Several doubly linked lists over numbered slots, in two typed arrays: appending, removing and looking at the first
 * take the same time whatever the size, and 65,536 entries cost the collector nothing.
 * A slot stands in at most one of the lists.
 */
const UNLINKED = -1;
export const NO_SLOT = -1;

export class SlotLists {
  readonly #lists: number;
  /** The first `lists` places are the lists' own ends; slot n stands at `lists + n`. */
  #next: Int32Array;
  #previous: Int32Array;

  /** `memory`: where other threads have the same lists; then somebody must empty them before they are used. */
  constructor(lists: number, slots: number, memory?: { readonly next: Int32Array; readonly previous: Int32Array }) {
    this.#lists = lists;
    this.#next = memory?.next ?? new Int32Array(lists + slots);
    this.#previous = memory?.previous ?? new Int32Array(lists + slots);
    if (memory === undefined) this.empty();
  }

  /** No slot stands in any list. */
  empty(): void {
    this.#next.fill(UNLINKED);
    this.#previous.fill(UNLINKED);
    for (let list = 0; list < this.#lists; list++) {
      this.#next[list] = list;
      this.#previous[list] = list;
    }
  }

  /** The slot that was appended earliest, or NO_SLOT. */
  first(list: number): number {
    const node = this.#next[list] as number;
    return node === list ? NO_SLOT : node - this.#lists;
  }

  append(list: number, slot: number): void {
    const node = this.#lists + slot;
    const last = this.#previous[list] as number;
    this.#next[last] = node;
    this.#previous[node] = last;
    this.#next[node] = list;
    this.#previous[list] = node;
  }

  /** Does nothing if the slot stands in no list. */
  remove(slot: number): void {
    const node = this.#lists + slot;
    const next = this.#next[node] as number;
    if (next === UNLINKED) return;
    const previous = this.#previous[node] as number;
    this.#next[previous] = next;
    this.#previous[next] = previous;
    this.#next[node] = UNLINKED;
  }

  grow(slots: number): void {
    this.#next = grown(this.#next, this.#lists + slots);
    this.#previous = grown(this.#previous, this.#lists + slots);
  }
}

function grown(array: Int32Array, length: number): Int32Array {
  const larger = new Int32Array(length).fill(UNLINKED);
  larger.set(array);
  return larger;
}
