/**
 * A protected route: a good token passes and is known by its own name; a bad one never does.
 */
import { WrongAnswer } from "../support/ledger.mjs";
import { ask, newNonce } from "./ask.mjs";

export const jwt = {
  name: "jwt",
  async once(world, random) {
    const sub = newNonce();
    const { good, bad } = world.tokens;
    const kind = random.pick(["good", "none", ...Object.keys(bad)]);
    const token = kind === "good" ? good(sub) : bad[kind]?.(sub);
    const { status, headers, text } = await ask(world, "/jwt", {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
    });
    if (status >= 500) throw new Error(`${status} ${text.slice(0, 100)}`);
    if (kind !== "good") {
      if (status !== 401) throw new WrongAnswer(`a token that is ${kind} was answered with ${status}`);
    } else if (status !== 200) throw new Error(`a good token was answered with ${status}: ${text.slice(0, 100)}`);
    else if (headers.get("x-sub") !== sub) throw new WrongAnswer(`${sub} was taken for ${headers.get("x-sub")}`);
  },
};
