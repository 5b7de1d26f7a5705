/**
 * The random numbers of a simulation. Every part draws from a stream of its own, named after it, so that a part that
 * draws more or is left out does not change the choices of the others.
 */
import { Random, seedOf } from "../support/random.ts";

export class Seeded extends Random {
  readonly #seed: number;

  constructor(seed: number, name: string) {
    const own = seedOf(Buffer.from(`${seed}/${name}`));
    super(own);
    this.#seed = own;
  }

  /** The stream of a part of this part. */
  part(name: string): Seeded {
    return new Seeded(this.#seed, name);
  }

  /** 0 … below 1. */
  fraction(): number {
    return this.next() / 2 ** 32;
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  between(least: number, most: number): number {
    return least + this.fraction() * (most - least);
  }

  /** Exponentially distributed, as the times between independent events are. */
  exponential(mean: number): number {
    return -mean * Math.log(1 - this.fraction());
  }

  /** Between both, with as many small values as large ones of each magnitude. */
  size(least: number, most: number): number {
    return Math.round(least * (most / least) ** this.fraction());
  }
}
