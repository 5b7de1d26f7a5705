/**
 * What requests want, between their preparation and their call, which mostly follows at once: one place is enough.
 * Where another request comes in between, or a rule refuses the earlier one, that waits beside and goes with its
 * exchange. (A WeakMap for all would do it, at the collector's expense.)
 */
import type { Exchange } from "../core/exchange.ts";
import type { Demand } from "./client-side/downstream.ts";

export class Demands {
  #exchange: Exchange | undefined = undefined;
  #demand: Demand | undefined = undefined;
  readonly #waiting = new WeakMap<Exchange, Demand>();

  set(exchange: Exchange, demand: Demand): void {
    if (this.#exchange && this.#demand) this.#waiting.set(this.#exchange, this.#demand);
    this.#exchange = exchange;
    this.#demand = demand;
  }

  take(exchange: Exchange): Demand | undefined {
    if (this.#exchange !== exchange) return this.#waiting.get(exchange);
    const demand = this.#demand;
    this.#exchange = undefined;
    this.#demand = undefined;
    return demand;
  }
}
