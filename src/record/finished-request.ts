/**
 * Defines a finished request, which is closed once, when the request ends. All outputs take its values from here:
 * `request-fields.ts` lists their names.
 */
import { dollarText } from "../base/format.ts";
import { describeAttempt, type Exchange } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import { requestSubject } from "../core/principal.ts";
import type { LlmAttributes, McpAttributes } from "../core/request-attributes.ts";
import { defined } from "../json/json.ts";
import {
  type RecordedAttempt,
  type RecordedLimit,
  type RecordedRule,
  type RecordedStep,
  resultOf,
} from "./trace/record.ts";
import { type Redaction, redactUrl } from "./trace/redact.ts";

export class FinishedRequest {
  readonly exchange: Exchange;
  readonly values: RequestValues;

  constructor(exchange: Exchange, outcome: Outcome, durationMs: number, redaction: FieldRedaction) {
    this.exchange = exchange;
    this.values = requestValues(exchange, outcome, durationMs, redaction);
  }
}

type FieldRedaction = Pick<Redaction, "host" | "scrub">;

/** Lists of requests keep these values, so they reference no bodies. */
export type RequestValues = ReturnType<typeof requestValues>;

function requestValues(
  exchange: Exchange,
  { status, end, responseBytes }: Outcome,
  durationMs: number,
  redaction: FieldRedaction,
) {
  const { arrived, attributes, credentials, failure, limits, records, response, source, upstream } = exchange;
  const { isCalled, startedMs, headMs } = upstream;
  return {
    id: exchange.id,
    recordId: exchange.recordId,
    listener: exchange.listener,
    route: exchange.route,
    backend: attributes.backend?.name,
    source,
    clientAddress: exchange.clientAddress,
    startedAt: exchange.startedAt,
    /** From the arrival of the request to the end of its response. */
    durationMs,
    /** From the arrival of the request to the response head of a server. Undefined if no server responded. */
    firstByteMs: isCalled && headMs !== undefined ? Math.max(0, headMs - exchange.startedMs) : undefined,
    /** From the request to a server until its response head or last MCP result. */
    upstreamMs: isCalled && startedMs !== undefined && headMs !== undefined ? headMs - startedMs : undefined,
    method: arrived.method,
    scheme: arrived.scheme,
    host: redaction.host(exchange.originalHost),
    path: exchange.originalPath,
    rawPath: arrived.rawPath,
    query: exchange.originalQuery,
    version: arrived.version,
    headers: arrived.headers,
    responseHeaders: status === undefined ? undefined : response?.headers,
    credentials: { query: credentials.query, secrets: credentials.secrets },
    /** Undefined if the connection ended before a response. */
    status,
    end,
    result: resultOf({ status: status ?? null, end, failure, mcp: attributes.mcp }),
    responseBytes,
    answeredBy: status === undefined ? undefined : answeredBy(exchange),
    subject: requestSubject(attributes),
    key: keyName(attributes),
    steps: exchange.steps,
    attempts: shownAttempts(exchange, redaction),
    failure,
    /** The explanation of a failure for the operator. */
    reason: failure && (failure.detail ?? failure.message),
    rules: shownRules(exchange, redaction),
    limitReadings: limits.readings,
    budgetReadings: limits.budgetReadings,
    spent: limits.spent,
    shadowDenials: exchange.shadow.denials,
    traceId: records.spans?.traceId,
    spanId: records.spans?.spanId,
    attributes,
  };
}

/** A backend also responds without a call of a server, for example if it denies a tool or has a cached response. */
function answeredBy({ response, upstream }: Exchange): "upstream" | "gateway" | undefined {
  if (response === undefined) return undefined;
  return response.source === "upstream" && upstream.isCalled ? "upstream" : "gateway";
}

/** Returns the name of the API key, or its user. */
function keyName({ apiKey }: Exchange["attributes"]): string | undefined {
  const key = apiKey?.name ?? apiKey?.user_id;
  return typeof key === "string" ? key : undefined;
}

/** Returns undefined unless an attempt was repeated: an MCP backend may call several servers once each. */
function shownAttempts(exchange: Exchange, redaction: FieldRedaction): readonly RecordedAttempt[] | undefined {
  const { list } = exchange.attempts;
  if (list.length < 2 || list.every(({ retryReason }) => retryReason === undefined)) return undefined;
  return list.map((attempt) => {
    const { error, retryReason, ...described } = describeAttempt(attempt);
    const shown = (text: string | undefined) => text && scrubbed(text, exchange, redaction);
    return { ...described, ...defined({ error: shown(error), retryReason: shown(retryReason) }) };
  });
}

/** Returns the rules of the authorization policy that rejected the request. */
function shownRules(exchange: Exchange, redaction: FieldRedaction): readonly RecordedRule[] | undefined {
  return exchange.checkedRules?.map((rule) =>
    rule.values === undefined ? rule : { ...rule, values: scrubbed(rule.values, exchange, redaction) },
  );
}

function scrubbed(text: string, { arrived, credentials }: Exchange, redaction: FieldRedaction): string {
  return redaction.scrub(text, arrived.headers.pairs, credentials.secrets);
}

/** The limits of rate limits and budgets after the request. They are formatted only if a request is shown or stored. */
export function recordedLimits({ limitReadings, budgetReadings }: RequestValues): RecordedLimit[] | undefined {
  if (limitReadings === undefined && budgetReadings === undefined) return undefined;
  return [
    ...(limitReadings ?? []).map(({ rule, limit, remaining, resetSeconds }) => ({
      limit: rule,
      remaining: `${remaining} of ${limit}`,
      resetSeconds,
    })),
    ...(budgetReadings ?? []).map(({ headers }) => {
      const amount = (name: string): string =>
        headers["x-budget-unit"] === "usd" ? dollarText(Number(headers[name])) : `${headers[name]}`;
      return {
        limit: `budget ${headers["x-budget-name"]}`,
        remaining: `${amount("x-budget-remaining")} of ${amount("x-budget-limit")}`,
        resetSeconds: Number(headers["x-budget-reset"]),
      };
    }),
  ];
}

export function mcpServer({ tool, prompt, resource, target }: McpAttributes): string | undefined {
  return tool?.target ?? prompt?.target ?? resource?.target ?? target;
}

/** Returns the name of the tool or prompt, or the URI of the resource. */
export function mcpItem({ tool, prompt, resource }: McpAttributes): string | undefined {
  return tool?.name ?? prompt?.name ?? (resource && redactUrl(resource.uri));
}

/** Returns the model that responded, or the requested one. */
export function llmModel({ responseModel, requestModel }: LlmAttributes): string | undefined {
  return responseModel ?? requestModel;
}

/** Formats steps as `jwtAuth,authorization=refused`, or with their phases as `route jwtAuth,route authorization=refused`. */
export function stepsText(steps: readonly RecordedStep[], hasPhase: boolean): string {
  let text = "";
  for (const { phase, policy, verdict } of steps)
    text += `${text === "" ? "" : ","}${hasPhase ? `${phase} ` : ""}${policy}${verdict === "passed" ? "" : `=${verdict}`}`;
  return text;
}

/** Parses a step without its phase. */
export function parseStep(phase: RecordedStep["phase"], text: string): RecordedStep {
  const [policy = "", verdict] = text.split("=");
  return { phase, policy, verdict: verdict === "refused" || verdict === "answered" ? verdict : "passed", micros: 0 };
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
