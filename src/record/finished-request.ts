/**
 * Defines a finished request, which is closed once, when the request ends. All outputs take the result, the duration, and
 * the names of the caller, of the MCP call, and of the model from here.
 */
import { dollarText } from "../base/format.ts";
import { describeAttempt, type Exchange } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import { requestSubject } from "../core/principal.ts";
import type { LlmAttributes, McpAttributes } from "../core/request-attributes.ts";
import type { Column, HistoryRow } from "./history/history-row.ts";
import {
  type RecordedAttempt,
  type RecordedLimit,
  type RecordedRule,
  type RecordedStep,
  type RequestRecord,
  type RequestResult,
  resultOf,
} from "./trace/record.ts";
import { type Redaction, redactUrl, shortSessionId } from "./trace/redact.ts";

export class FinishedRequest {
  readonly exchange: Exchange;
  /** Undefined if the connection ended before a response. */
  readonly status: number | undefined;
  readonly end: Outcome["end"];
  readonly responseBytes: number;
  /** From the arrival of the request to the end of its response. */
  readonly durationMs: number;
  readonly result: RequestResult;
  readonly subject: string | null;
  #attempts: readonly RecordedAttempt[] | undefined = undefined;
  #rules: readonly RecordedRule[] | undefined = undefined;

  constructor(exchange: Exchange, { status, end, responseBytes }: Outcome, durationMs: number) {
    const { failure, attributes } = exchange;
    this.exchange = exchange;
    this.status = status;
    this.end = end;
    this.responseBytes = responseBytes;
    this.durationMs = durationMs;
    this.result = resultOf({ status: status ?? null, end, failure, mcp: attributes.mcp });
    this.subject = requestSubject(attributes);
  }

  /** From the request to a server until its response head or last MCP result. NaN if no server responded. */
  get upstreamMs(): number {
    const { startedMs, headMs, isCalled } = this.exchange.upstream;
    return isCalled && startedMs !== undefined && headMs !== undefined ? headMs - startedMs : Number.NaN;
  }

  /** Null if the connection ended before a response. */
  get answeredBy(): RequestRecord["answeredBy"] {
    const { response, upstream } = this.exchange;
    if (this.status === undefined || response === undefined) return null;
    // A backend also responds without a call of a server, for example if it denies a tool or has a cached response.
    return response.source === "upstream" && upstream.isCalled ? "upstream" : "gateway";
  }

  /** The name of the API key, or its user. */
  get key(): string | undefined {
    const { name, user_id: user } = this.exchange.attributes.apiKey ?? {};
    const key = name ?? user;
    return typeof key === "string" ? key : undefined;
  }

  /** The explanation of a failure for the operator. */
  get reason(): string | undefined {
    const { failure } = this.exchange;
    return failure && (failure.detail ?? failure.message);
  }

  /** The attempts, with secrets redacted. Undefined unless one was repeated: an MCP backend may call several servers once each. */
  attempts(redaction: Pick<Redaction, "scrub">): readonly RecordedAttempt[] | undefined {
    const { list } = this.exchange.attempts;
    if (list.length < 2 || list.every(({ retryReason }) => retryReason === undefined)) return undefined;
    this.#attempts ??= recordedAttempts(this.exchange, redaction);
    return this.#attempts;
  }

  /** The rules of the authorization policy that rejected the request, with secrets redacted. */
  rules(redaction: Pick<Redaction, "scrub">): readonly RecordedRule[] | undefined {
    const { checkedRules, arrived, credentials } = this.exchange;
    this.#rules ??= checkedRules?.map((rule) =>
      rule.values === undefined
        ? rule
        : { ...rule, values: redaction.scrub(rule.values, arrived.headers.pairs, credentials.secrets) },
    );
    return this.#rules;
  }
}

/** The limits of rate limits and budgets after the request. They are formatted only if a request is shown or stored. */
export function recordedLimits(
  limitReadings: Exchange["limits"]["readings"] = [],
  budgetReadings: Exchange["limits"]["budgetReadings"] = [],
): RecordedLimit[] {
  return [
    ...limitReadings.map(({ rule, limit, remaining, resetSeconds }) => ({
      limit: rule,
      remaining: `${remaining} of ${limit}`,
      resetSeconds,
    })),
    ...budgetReadings.map(({ headers }) => {
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

/**
 * A field of an LLM or MCP call, with its names in the outputs that have it: the access log, spans (OpenTelemetry defines
 * most names of both), `/debug/requests`, and the history.
 */
export interface CallField<Call> {
  value(call: Call): string | number | readonly string[] | undefined;
  readonly log?: string;
  readonly span?: string;
  readonly record?: string;
  readonly column?: Column;
  /** The history stores the value multiplied by this. */
  readonly scale?: number;
}

const same = (name: string) => ({ log: name, span: name });

export const LLM_FIELDS: readonly CallField<LlmAttributes>[] = [
  { value: ({ provider }) => provider, ...same("gen_ai.provider.name"), record: "provider", column: "provider" },
  { value: ({ requestModel }) => requestModel, ...same("gen_ai.request.model") },
  { value: ({ responseModel }) => responseModel, ...same("gen_ai.response.model") },
  { value: llmModel, record: "model", column: "model" },
  { value: ({ providerRequestId }) => providerRequestId, ...same("gen_ai.provider.request_id") },
  {
    value: ({ inputTokens }) => inputTokens,
    ...same("gen_ai.usage.input_tokens"),
    record: "inputTokens",
    column: "input_tokens",
  },
  {
    value: ({ outputTokens }) => outputTokens,
    ...same("gen_ai.usage.output_tokens"),
    record: "outputTokens",
    column: "output_tokens",
  },
  {
    value: ({ cachedInputTokens }) => cachedInputTokens,
    ...same("gen_ai.usage.cache_read.input_tokens"),
    record: "cachedTokens",
    column: "cached_tokens",
  },
  {
    value: ({ cacheCreationInputTokens }) => cacheCreationInputTokens,
    ...same("gen_ai.usage.cache_creation.input_tokens"),
    column: "cache_write_tokens",
  },
  {
    value: ({ reasoningTokens }) => reasoningTokens,
    ...same("gen_ai.usage.reasoning.output_tokens"),
    column: "reasoning_tokens",
  },
  {
    value: ({ cost }) => cost,
    log: "llm.cost",
    span: "gateway.llm.cost_usd",
    record: "cost",
    column: "cost_nano",
    scale: 1e9,
  },
  { value: ({ dropped }) => dropped, log: "llm.dropped", record: "dropped" },
  { value: ({ providerCalls }) => providerCalls, log: "llm.provider_calls" },
];

export const MCP_FIELDS: readonly CallField<McpAttributes>[] = [
  {
    value: ({ methodName }) => methodName,
    log: "mcp.method",
    span: "mcp.method.name",
    record: "method",
    column: "mcp_method",
  },
  { value: mcpServer, log: "mcp.target", span: "gateway.mcp.target", record: "target", column: "server" },
  { value: ({ tool }) => tool?.name, log: "mcp.tool", span: "gen_ai.tool.name" },
  { value: ({ prompt }) => prompt?.name, span: "gen_ai.prompt.name" },
  { value: ({ resource }) => resource && redactUrl(resource.uri), span: "mcp.resource.uri" },
  { value: mcpItem, record: "name", column: "tool" },
  {
    value: ({ sessionId }) => sessionId && shortSessionId(sessionId),
    span: "mcp.session.id",
    record: "session",
    column: "session",
  },
  {
    value: ({ outcome }) => outcome,
    log: "mcp.outcome",
    span: "gateway.mcp.outcome",
    record: "outcome",
    column: "mcp_outcome",
  },
];

type Fields = Record<string, unknown>;

/** Returns a function that adds the fields that one output has. */
export function fieldAdder<Call>(
  all: readonly CallField<Call>[],
  output: "log" | "span",
): (to: Fields, call: Call) => void {
  const fields = all.flatMap(({ [output]: name, value }) => (name === undefined ? [] : [{ name, value }]));
  return (to, call) => {
    for (const { name, value } of fields) {
      const one = value(call);
      if (one !== undefined) to[name] = Array.isArray(one) ? one.join(",") : one;
    }
  };
}

/** The history stores absent values as zero or an empty string, so records omit both. */
function recordFields<Call>(fields: readonly CallField<Call>[], read: (field: CallField<Call>) => unknown): Fields {
  const record: Fields = {};
  for (const field of fields) {
    const value = field.record && read(field);
    if (value) record[field.record as string] = value;
  }
  return record;
}

export function mcpFields(mcp: McpAttributes): NonNullable<RequestRecord["mcp"]> {
  return recordFields(MCP_FIELDS, ({ value }) => value(mcp));
}

export function llmFields(llm: LlmAttributes): NonNullable<RequestRecord["llm"]> {
  return recordFields(LLM_FIELDS, ({ value }) => value(llm));
}

/** Returns undefined for a request that was no such call. */
export function storedFields<Call>(fields: readonly CallField<Call>[], row: HistoryRow): Fields | undefined {
  const record = recordFields(fields, ({ column, scale = 1 }) => {
    const stored = column && row[column];
    return typeof stored === "number" ? stored / scale : stored;
  });
  return Object.keys(record).length === 0 ? undefined : record;
}

function recordedAttempts(
  { attempts, arrived, credentials }: Exchange,
  redaction: Pick<Redaction, "scrub">,
): RecordedAttempt[] {
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
