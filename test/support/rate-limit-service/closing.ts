/**
 * Closes what a test started, in reverse order.
 */
import type { TestContext } from "node:test";

export type OnEnd = (close: () => Promise<void>) => void;

export function closing(t: TestContext): OnEnd {
  const open: (() => Promise<void>)[] = [];
  t.after(async () => {
    for (const close of open.reverse()) await close();
  });
  return (close) => void open.push(close);
}
