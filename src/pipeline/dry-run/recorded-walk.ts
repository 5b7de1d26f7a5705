/**
 * A recorded request walked again: as it was recorded, by whom it came, with the facts that stand for its body. What
 * counts here is the verdict, so that two configurations can be compared.
 */
import { ERRORS } from "../../core/errors.ts";
import type { RecordedRequest } from "../records/recorded-request.ts";
import type { DryRequest } from "./dry-request.ts";
import type { DryReport, DryRunner } from "./dry-run.ts";

export interface Verdict {
  readonly route: string | null;
  readonly outcome: DryReport["outcome"];
  readonly status: number;
  readonly code: string | null;
  readonly reason: string | null;
  /** Undefined where they are not known. */
  readonly requestHeaders: Headers | undefined;
  readonly responseHeaders: Headers | undefined;
}

type Headers = Readonly<Record<string, string | string[]>>;

export async function walkRecorded(recorded: RecordedRequest, runner: DryRunner): Promise<Verdict> {
  let report: DryReport;
  try {
    report = await runner.run(dryRequestOf(recorded), { keep: true });
  } catch (error) {
    // The listener is gone.
    const reason = (error as Error).message;
    const nothing = { requestHeaders: undefined, responseHeaders: undefined };
    return { route: null, outcome: "refused", status: 0, code: "not_served", reason, ...nothing };
  }
  const { route, outcome, status, reason, request, responseHeaders } = report;
  return {
    route,
    outcome,
    status,
    code: outcome === "refused" ? (reason?.code ?? null) : null,
    reason: outcome === "refused" ? (reason?.detail ?? reason?.message ?? null) : null,
    requestHeaders: request?.headers,
    responseHeaders,
  };
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

function dryRequestOf(recorded: RecordedRequest): DryRequest {
  const { method, scheme, host, path, query, listener, source, identity, claims, principals, mcp, llm } = recorded;
  return {
    method,
    url: `${scheme}://${host}${path}${query === "" ? "" : `?${query}`}`,
    listener,
    source,
    identity,
    headers: headersOf(recorded.headers),
    recorded: { claims, principals },
    facts: { ...(mcp ? { mcp } : {}), ...(llm ? { llm } : {}) },
  };
}

/** Without those that frame a body, which there is not. */
function headersOf(pairs: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const name = pairs[i] as string;
    if (name === "content-length" || name === "transfer-encoding" || name === "host" || name === "expect") continue;
    const value = pairs[i + 1] as string;
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  return headers;
}
