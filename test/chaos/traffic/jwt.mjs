/**
 * A protected route: a good token passes and is known by its own name; a bad one never does.
 */
import { WrongAnswer } from "../support/ledger.mjs";
import { ask, newNonce } from "./ask.mjs";

/** Of each kind, used again and again: with ever new ones the gateway's memory would grow until its store of verdicts is full. */
const MAX_TOKENS = 200;
const tokens = new Map();

function tokenOf(kind, make, random) {
  if (!tokens.has(kind)) tokens.set(kind, []);
  const made = tokens.get(kind);
  if (made.length >= MAX_TOKENS) return random.pick(made);
  const sub = newNonce();
  made.push({ sub, token: make?.(sub) });
  return made.at(-1);
}

export const jwt = {
  name: "jwt",
  async once(world, random) {
    const { good, bad } = world.tokens;
    const kind = random.pick(["good", "none", ...Object.keys(bad)]);
    const { sub, token } = tokenOf(kind, kind === "good" ? good : bad[kind], random);
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
