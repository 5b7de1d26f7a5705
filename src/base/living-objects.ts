/**
 * Counts objects that the garbage collector has not collected, so that a leak of large objects shows in the metrics.
 */
export class LivingObjects {
  readonly #references = new Set<WeakRef<object>>();

  add(object: object): void {
    this.count();
    this.#references.add(new WeakRef(object));
  }

  count(): number {
    for (const reference of this.#references) if (reference.deref() === undefined) this.#references.delete(reference);
    return this.#references.size;
  }
}
