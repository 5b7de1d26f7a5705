/**
 * Decides which response statuses trigger failover (`ai.failoverOn`) and which eject the target.
 */
import { z } from "zod";

const FAILOVER_CAUSES = ["rateLimit", "serverError", "timeout", "authentication", "notFound", "contextLength"] as const;

export const failoverOn = z
  .array(
    z.union([z.enum(FAILOVER_CAUSES), z.int().min(400).max(599)], {
      error: `expected a status from 400 to 599, or one of ${FAILOVER_CAUSES.join(", ")}`,
    }),
  )
  .optional()
  .describe(
    "Responses that cause failover to the next provider: `rateLimit` (429), `serverError` (5xx), `timeout` (408), `authentication` (401 and 403, unless the client's own key was used), `notFound` (404), `contextLength` (a prompt that is too long for the model), or a status code. Default: all of these names. Connection failures and timeouts always cause failover.",
  );

export type FailoverCause = (typeof FAILOVER_CAUSES)[number] | number;

export interface FailoverRules {
  /** `ownKey` is true if the gateway supplied the credential. Other targets may also reject a key from the client. */
  onStatus(status: number, ownKey: boolean): boolean;
  ejects(status: number, ownKey: boolean): boolean;
  readonly onContextLength: boolean;
}

const STATUSES: Readonly<Record<Exclude<FailoverCause, number | "contextLength" | "serverError">, readonly number[]>> =
  {
    rateLimit: [429],
    authentication: [401, 403],
    notFound: [404],
    timeout: [408],
  };

export const DEFAULT_FAILOVER_ON: readonly FailoverCause[] = FAILOVER_CAUSES;

export function compileFailoverRules(causes: readonly FailoverCause[]): FailoverRules {
  const statuses = new Set<number>();
  let onServerError = false;
  let onContextLength = false;
  for (const cause of causes) {
    if (typeof cause === "number") statuses.add(cause);
    else if (cause === "serverError") onServerError = true;
    else if (cause === "contextLength") onContextLength = true;
    else for (const status of STATUSES[cause]) statuses.add(status);
  }
  return {
    onContextLength,
    onStatus(status, ownKey) {
      if (status < 400) return false;
      if (!ownKey && (status === 401 || status === 403)) return false;
      return (onServerError && status >= 500) || statuses.has(status);
    },
    // The client may cause other statuses, for example with an unknown model or an oversized request.
    ejects: (status, ownKey) =>
      status >= 500 || status === 429 || status === 408 || (ownKey && (status === 401 || status === 403)),
  };
}
