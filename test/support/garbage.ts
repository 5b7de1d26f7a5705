/** Collects garbage until weak references to unreachable objects are empty. */
import { collectGarbage } from "../../src/base/heap-pressure.ts";

export async function collectAllGarbage(): Promise<void> {
  // A weak reference holds its target until the end of the turn, and promises that settled free what they held later.
  for (let i = 0; i < 3; i++) {
    await new Promise((resolve) => setImmediate(resolve));
    collectGarbage();
  }
}
