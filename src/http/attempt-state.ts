/**
 * The life of one attempt to get an answer: asked, answering, then over in one of three ways. Every level that hands an
 * answer on (a connection, a run over several targets, the pipeline) asks this table what an event means, because any of
 * them may be called back while it calls: an event that means nothing in a state is dropped, never half done.
 */
export type AttemptState = "asked" | "answering" | "ended" | "failed" | "abandoned";

/** `abort` is ours: nobody wants the answer any more. All others come from the side that answers. */
export type AttemptEvent = "head" | "data" | "end" | "upgrade" | "error" | "abort";

/** The state after the event; undefined if the event means nothing in this state. */
export function afterEvent(state: AttemptState, event: AttemptEvent): AttemptState | undefined {
  if (isOver(state)) return undefined;
  switch (event) {
    case "head":
      return state === "asked" ? "answering" : undefined;
    case "upgrade":
      return state === "asked" ? "ended" : undefined;
    case "data":
      return state === "answering" ? "answering" : undefined;
    case "end":
      return state === "answering" ? "ended" : undefined;
    case "error":
      return "failed";
    case "abort":
      return "abandoned";
  }
}

export function isOver(state: AttemptState): state is "ended" | "failed" | "abandoned" {
  return state !== "asked" && state !== "answering";
}
