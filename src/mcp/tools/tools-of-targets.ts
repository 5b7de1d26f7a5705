/**
 * What the configuration makes of the tools of each target, and what is withheld of them. It outlives sessions: what
 * one session found out is told to everybody who asks.
 */
import type { Logger } from "../../observe/log/logger.ts";
import type { Target } from "../server-side/target.ts";
import { Quarantine } from "./quarantine.ts";
import type { ToolProduct } from "./tool-product.ts";

/** By the name of the target; where the configuration does not change its tools there is none. */
export type ToolProducts = ReadonlyMap<string, ToolProduct>;

export class ToolsOfTargets {
  readonly #logger: Logger;
  readonly #quarantines = new Map<Target, Quarantine>();
  #products: ToolProducts;

  constructor(products: ToolProducts, logger: Logger) {
    this.#products = products;
    this.#logger = logger;
  }

  /** Another configuration serves. Returns for which targets nothing changes. */
  configure(products: ToolProducts): (name: string) => boolean {
    const before = this.#products;
    this.#products = products;
    return (name) => products.get(name)?.fingerprint === before.get(name)?.fingerprint;
  }

  of(target: Target): { readonly product: ToolProduct; readonly quarantine: Quarantine } | undefined {
    const product = this.#products.get(target.name);
    if (product === undefined) return undefined;
    let quarantine = this.#quarantines.get(target);
    if (quarantine === undefined) {
      quarantine = new Quarantine(target.name, this.#logger);
      this.#quarantines.set(target, quarantine);
    }
    return { product, quarantine };
  }

  forget(target: Target): void {
    this.#quarantines.delete(target);
  }

  /** Tools that are withheld because they differ from the lock file. */
  report(): Record<string, unknown> {
    const tools = [...this.#quarantines].flatMap(([{ name }, quarantine]) =>
      quarantine.tools.map((tool) => ({
        target: name,
        tool: tool.name,
        difference: tool.difference,
        suspicious: tool.markers,
      })),
    );
    return tools.length === 0 ? {} : { quarantined: tools };
  }
}
