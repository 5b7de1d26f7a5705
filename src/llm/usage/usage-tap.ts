/**
 * Watches an answer go by and finds out what it cost: usage and model, in whichever provider's shape, from JSON,
 * server-sent events and AWS event streams, encoded or not. It changes nothing, holds one event at a time, and
 * counts what was delivered, so that an answer that breaks off can be settled too (spec 3, 8).
 */
import type { LlmFacts } from "../../core/facts.ts";
import { createAnswerReader } from "./answer-reader.ts";
import type { AnswerReport } from "./event-meter.ts";
import { writeUsage } from "./usage.ts";

export interface UsageTap {
  /** `usageAt`: what `usageEventAt` says of a chunk of server-sent events, where the caller has asked it. */
  data(chunk: Buffer, usageAt?: number): void;
  /** The same for text of which `isPlainEvents` is true, one character for each byte; only of an event stream. */
  readonly plain: ((text: string) => void) | undefined;
  /** The answer ended as it should. */
  end(): void;
  /** It broke off, or the client left. */
  abort(): void;
}

export interface TapReport extends AnswerReport {
  readonly complete: boolean;
}

/** `report` is called once, when the answer ends or breaks off. */
export function createUsageTap(
  contentType: string | undefined,
  contentEncoding: string | undefined,
  report: (report: TapReport) => void,
): UsageTap {
  const reader = createAnswerReader(contentType, contentEncoding);
  let reported = false;
  const finish = (complete: boolean): void => {
    if (reported) return;
    reported = true;
    const { usage, responseModel, uncountedTokens } = reader.finish(complete);
    report({ usage, responseModel, uncountedTokens, complete });
  };
  return {
    data: reader.data,
    plain: reader.plain,
    end: () => finish(true),
    abort: () => finish(false),
  };
}

/** The report as facts: real counts where the provider gave them, else what was asked and what was delivered. */
export function settleUsage(facts: LlmFacts, report: TapReport): void {
  if (report.responseModel !== undefined) facts.responseModel = report.responseModel;
  const { usage, uncountedTokens, complete } = report;
  if (usage !== undefined) {
    // A stream that broke off wrote more than it had counted.
    if (uncountedTokens === 0) {
      writeUsage(facts, usage);
      return;
    }
    const outputTokens = usage.outputTokens + uncountedTokens;
    writeUsage(facts, {
      ...usage,
      outputTokens,
      totalTokens: Math.max(usage.totalTokens, usage.inputTokens + outputTokens),
    });
  } else if (uncountedTokens > 0 || !complete) {
    const inputTokens = facts.estimatedTokens ?? 0;
    writeUsage(facts, { inputTokens, outputTokens: uncountedTokens, totalTokens: inputTokens + uncountedTokens });
  }
}
