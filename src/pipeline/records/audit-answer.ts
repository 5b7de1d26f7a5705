/**
 * What the audit record of an LLM call says of its answer, as the client got it: why the model ended, and what it said,
 * if `results` asks for that.
 */

import { type ContentReport, createAnswerContent } from "../../llm/usage/answer-content.ts";
import type { LogValue } from "../../observe/log/logger.ts";
import type { AnswerObserver } from "../../observe/trace/audit-trail.ts";
import type { RecordedValue } from "./audit-value.ts";

export interface AnswerRecord extends AnswerObserver {
  /** Asked once, after the end. */
  fields(): Record<string, LogValue>;
}

export function createAnswerRecord(
  contentType: string | undefined,
  contentEncoding: string | undefined,
  value: RecordedValue | undefined,
): AnswerRecord {
  let hasText = false;
  let report: ContentReport | undefined;
  const onText = (text: string): void => {
    hasText = true;
    value?.add(text);
  };
  const content = createAnswerContent(contentType, contentEncoding, value && onText);
  return {
    data: content.data,
    end() {
      report ??= content.end();
    },
    fields: () => ({
      finish: report?.finish,
      ...(hasText ? value?.fields() : {}),
      ...(report?.isWhole === false ? { result_unread: true } : {}),
    }),
  };
}
