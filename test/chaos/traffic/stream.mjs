/**
 * Long answers in many pieces. One that ends as if it were whole has every line, in order.
 */
import { WrongAnswer } from "../support/ledger.mjs";
import { askFor, newNonce } from "./ask.mjs";

export const stream = {
  name: "stream",
  async once(world, random) {
    const nonce = newNonce();
    const lines = random.between(1, 3_000);
    const { text } = await askFor(200, world, `/web/stream?nonce=${nonce}&lines=${lines}`);
    const got = text.split("\n");
    const first = got.findIndex((line, i) => line !== (i < lines ? `${nonce}:${i}` : ""));
    if (first >= 0 || got.length !== lines + 1)
      throw new WrongAnswer(`${lines} lines asked for, ${got.length - 1} came; line ${first} is ${got[first]}`);
  },
};
