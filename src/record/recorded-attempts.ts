/**
 * Describes the attempts of a finished request, with secrets redacted, for the access log and recent requests.
 */
import { describeAttempt } from "../core/attempts.ts";
import type { Exchange } from "../core/exchange.ts";
import type { Redaction } from "./trace/redact.ts";
import type { RecordedAttempt } from "./trace/request-record.ts";

/** Returns undefined unless an attempt was repeated. An MCP backend may call several servers once each. */
export function recordedAttempts(
  { attempts, arrived, credentials }: Exchange,
  redaction: Pick<Redaction, "scrub">,
): readonly RecordedAttempt[] | undefined {
  if (attempts.list.length < 2 || attempts.list.every(({ retryReason }) => retryReason === undefined)) return undefined;
  const shown = (text: string): string => redaction.scrub(text, arrived.headers.pairs, credentials.secrets);
  return attempts.list.map((attempt) => {
    const { error, retryReason, ...described } = describeAttempt(attempt);
    return {
      ...described,
      ...(error === undefined ? {} : { error: shown(error) }),
      ...(retryReason === undefined ? {} : { retryReason: shown(retryReason) }),
    };
  });
}

/** Formats attempts as `openai api.openai.com:443: 503 after 12.5 ms; groq api.groq.com:443: 200 after 80 ms`. */
export function attemptsText(attempts: readonly RecordedAttempt[]): string {
  return attempts
    .map(({ provider, target, status, error, durationMs }) => {
      const server = provider === undefined ? target : `${provider} ${target}`;
      const after = durationMs === null ? "" : ` after ${durationMs} ms`;
      return `${server}: ${error ?? status ?? "no response"}${after}`;
    })
    .join("; ");
}
