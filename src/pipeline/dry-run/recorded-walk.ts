/**
 * A recorded request walked again: as it was recorded, by whom it came, with the facts that stand for its body. What
 * counts here is the verdict, so that two configurations can be compared.
 */
import { ERRORS, GatewayError } from "../../core/errors.ts";
import type { RecordedRequest } from "../records/recorded-request.ts";
import { type DryReport, itemOf } from "./dry-report.ts";
import type { DryRunner, Walked } from "./dry-run.ts";

export interface Verdict {
  readonly route: string | null;
  readonly outcome: DryReport["outcome"];
  readonly status: number;
  readonly code: string | null;
  readonly reason: string | null;
  /** name, value, name, value, …; undefined where they are not known. */
  readonly requestHeaders: readonly string[] | undefined;
  readonly responseHeaders: readonly string[] | undefined;
}

/** At once, unless a policy waits. */
export function walkRecorded(recorded: RecordedRequest, runner: DryRunner): Verdict | Promise<Verdict> {
  try {
    const walked = runner.walk(recorded);
    return walked instanceof Promise ? walked.then(verdictOf, unwalked) : verdictOf(walked);
  } catch (error) {
    return unwalked(error);
  }
}

function verdictOf({ exchange, called }: Walked): Verdict {
  // Asking for the item may add the reason why it is hidden.
  const item = exchange.facts.mcp && itemOf(exchange, called !== undefined);
  const { failure, response } = exchange;
  const outcome = called && item?.visible !== false ? "forwarded" : failure ? "refused" : "answered";
  return {
    route: exchange.route ?? null,
    outcome,
    status: response?.status ?? 0,
    code: outcome === "refused" ? (failure?.code ?? null) : null,
    reason: outcome === "refused" ? (failure?.detail ?? failure?.message ?? null) : null,
    requestHeaders: called?.headers.pairs,
    responseHeaders: response?.headers.pairs,
  };
}

/** The edge refuses it, its listener is gone, or its walk broke. */
function unwalked(error: unknown): Verdict {
  const nothing = { route: null, outcome: "refused", requestHeaders: undefined, responseHeaders: undefined } as const;
  if (error instanceof GatewayError) {
    const { status, code, message, detail } = error;
    return { ...nothing, status, code, reason: detail ?? message };
  }
  return { ...nothing, status: 0, code: "not_served", reason: (error as Error).message };
}

/** What became of it when it was recorded. A failure behind the gateway is none of the configuration. */
export function recordedVerdict({ route, status, code }: RecordedRequest): Verdict {
  const isRefused = code !== null && ERRORS[code as keyof typeof ERRORS]?.source === "client";
  return {
    route,
    outcome: isRefused ? "refused" : "forwarded",
    status: isRefused ? (status ?? 0) : 200,
    code: isRefused ? code : null,
    reason: isRefused ? code : null,
    requestHeaders: undefined,
    responseHeaders: undefined,
  };
}
