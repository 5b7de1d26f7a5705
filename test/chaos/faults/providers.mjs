/**
 * The first LLM provider answers with errors, or not at all. The second one stands in for it, so most calls still
 * succeed; an answer that is no answer, and a hanging provider, end the call.
 */
const row = (mood, explains) => ({
  name: `provider: ${mood}`,
  uses: "llm",
  explains,
  forMs: [300, 2_500],
  recoveryMs: 1_500,
  begin({ standIns }) {
    standIns.llm.set(mood);
    return () => standIns.llm.set("answers");
  },
});

export const providerFaults = [row("429", []), row("500", []), row("nonsense", ["llm"]), row("hangs", ["llm"])];
