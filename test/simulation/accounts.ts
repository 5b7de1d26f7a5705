/**
 * Finds every memory account that the gateways of this process open. The pools are private to the gateway, so their
 * classes report the instances that are used.
 */
import { BodyPool, MemoryPool, MessagePool } from "../../src/base/memory-budget.ts";

interface Pool {
  readonly usedBytes: number;
}

/** Returns a function that lists the pools that are not empty. */
export function watchAccounts(): () => string[] {
  const pools = new Set<Pool>();
  const watch = (prototype: object, method: string): void => {
    const real = (prototype as Record<string, (...args: unknown[]) => unknown>)[method];
    if (real === undefined) throw new Error(`${method} does not exist`);
    Object.assign(prototype, {
      [method](this: Pool, ...args: unknown[]) {
        pools.add(this);
        return real.apply(this, args);
      },
    });
  };
  watch(MemoryPool.prototype, "charge");
  watch(BodyPool.prototype, "holdSmall");
  watch(BodyPool.prototype, "open");
  watch(MessagePool.prototype, "add");
  return () =>
    [...pools]
      .filter(({ usedBytes }) => usedBytes !== 0)
      .map((pool) => `${pool.constructor.name} has ${pool.usedBytes} bytes`);
}
