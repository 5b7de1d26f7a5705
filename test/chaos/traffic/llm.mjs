/**
 * Chat completions, whole and as streams, from two providers of which the second stands in for the first. The answer
 * says the question again; a stream that ends with `[DONE]` is whole.
 */
import { WrongAnswer } from "../support/ledger.mjs";
import { askFor, newNonce } from "./ask.mjs";

export const llm = {
  name: "llm",
  async once(world, random) {
    const nonce = newNonce();
    const content = Array.from({ length: random.between(1, 60) }, (_, i) => `${nonce}-${i}`).join(" ");
    const isStream = random.chance(0.5);
    const { text } = await askFor(200, world, "/llm/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "echo", stream: isStream, messages: [{ role: "user", content }] }),
    });
    const said = isStream ? streamed(text) : JSON.parse(text).choices[0].message.content;
    if (said !== content)
      throw new WrongAnswer(`asked for ${content.slice(0, 100)}, got ${String(said).slice(0, 300)}`);
  },
};

function streamed(text) {
  const events = text.split("\n\n").filter((event) => event.startsWith("data: "));
  if (events.at(-1) !== "data: [DONE]") throw new Error(`the stream broke off: ${text.slice(-200)}`);
  return events
    .slice(0, -1)
    .map((event) => JSON.parse(event.slice("data: ".length)).choices[0]?.delta.content ?? "")
    .join("");
}
