/**
 * Adds up what the events of a stream say: the last usage, the model, and the text that no usage has counted yet.
 */

import { type Members, parseMembers } from "../../json/json.ts";
import { isTooComplex } from "../encoding/event-body.ts";
import { estimateTextTokens } from "./estimate.ts";
import { usageAtEnd } from "./large-event.ts";
import { modelOf, textOf, usageOf } from "./stream-event.ts";
import { mergeUsage, readUsage, type Usage } from "./usage.ts";

/** What an answer said of itself. */
export interface AnswerReport {
  /** What the provider said, if it said something. */
  readonly usage: Usage | undefined;
  readonly responseModel: string | undefined;
  /** Estimated tokens of the text that no usage counts: all of it if there was none, what came after it if it broke off. */
  readonly uncountedTokens: number;
}

/** Adds up what events say; of the chunks that were not read it supposes what it saw in the others. */
export function createEventMeter() {
  let usage: Members | undefined;
  let model: string | undefined;
  let bytes = 0;
  let bytesRead = 0;
  let tokensRead = 0;
  /** Anthropic's first event counts the question and one token of the answer: nothing of what follows. */
  let isFirstWord = false;
  return {
    bytes(size: number, isRead: boolean): void {
      bytes += size;
      if (isRead) bytesRead += size;
    },
    /** True if the event counts all that was said before it. */
    event(data: string): boolean {
      const event = isTooComplex(data) ? usageAtEnd(data) : parseMembers(data);
      if (event === undefined) return false;
      model ??= modelOf(event);
      const counted = usageOf(event);
      if (counted !== undefined) {
        usage = mergeUsage(usage, counted);
        isFirstWord = event.type === "message_start";
      }
      if (counted !== undefined && countsOutput(counted)) {
        bytes = 0;
        bytesRead = 0;
        tokensRead = 0;
        return true;
      }
      const text = textOf(event);
      if (text !== "") tokensRead += estimateTextTokens(Buffer.from(text));
      return false;
    },
    // Methods, no getters: a literal with getters is slow, and V8 keeps what they know until its next full collection.
    knowsModel(): boolean {
      return model !== undefined;
    },
    /** Only the model: what it says besides was counted. */
    nameIn(data: string): void {
      const event = model === undefined && !isTooComplex(data) ? parseMembers(data) : undefined;
      if (event !== undefined) model = modelOf(event);
    },
    knowsAll(): boolean {
      return usage !== undefined && !isFirstWord && model !== undefined;
    },
    finish(complete: boolean): AnswerReport {
      const countsAll = complete && usage !== undefined && !isFirstWord;
      // A chunk that holds usage is whole: what follows in it was read.
      const uncounted = bytesRead === 0 ? tokensRead : Math.ceil((tokensRead * bytes) / bytesRead);
      return { usage: readUsage(usage), responseModel: model, uncountedTokens: countsAll ? 0 : uncounted };
    },
  };
}

/** The first chunks of some streams count only their input: what they say is not counted yet. */
function countsOutput(usage: Members): boolean {
  const { candidatesTokenCount, output_tokens, completion_tokens, outputTokens, outputTokenCount } = usage;
  return [candidatesTokenCount, output_tokens, completion_tokens, outputTokens, outputTokenCount].some(
    (count) => typeof count === "number",
  );
}
