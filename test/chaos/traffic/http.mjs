/**
 * Requests with bodies of all sizes: the answer has the request's nonce and the digest of its body.
 */
import { createHash, randomBytes } from "node:crypto";
import { WrongAnswer } from "../support/ledger.mjs";
import { askFor, newNonce } from "./ask.mjs";

export const http = {
  name: "http",
  async once(world, random) {
    const nonce = newNonce();
    const body = randomBytes(random.pick([0, 10, 1_000, 70_000, 300_000]));
    const { text } = await askFor(200, world, `/web/echo?nonce=${nonce}`, { method: "POST", body });
    const expected = JSON.stringify({ nonce, digest: createHash("sha256").update(body).digest("hex") });
    if (text !== expected) throw new WrongAnswer(`asked for ${expected}, got ${text.slice(0, 200)}`);
  },
};
