/**
 * A limited route, asked for more than it allows: what passes stays within the budget since the beginning.
 */
import { LIMIT } from "../support/config.mjs";
import { WrongAnswer } from "../support/ledger.mjs";
import { ask } from "./ask.mjs";

let sinceMs;
let passed = 0;

export const limited = {
  name: "limited",
  async once(world) {
    sinceMs ??= performance.now();
    const { status, text } = await ask(world, "/limited");
    if (status === 200) passed += 1;
    else if (status !== 429) throw new Error(`${status} ${text.slice(0, 100)}`);
    // One window more, because the last one may have begun just before now.
    const windows = Math.ceil((performance.now() - sinceMs) / 1000) + 1;
    const allowed = windows * LIMIT.requests + LIMIT.burst;
    if (passed > allowed) throw new WrongAnswer(`${passed} requests passed, the limit allows ${allowed}`);
  },
};
