/**
 * Lists the fields of a request, of its MCP call, and of its LLM call, with their names in the outputs that have them:
 * the access log, spans (OpenTelemetry defines most names of both), `/debug/requests`, and the history. A new field is
 * one row.
 */
import { stringOrUndefined } from "../core/principal.ts";
import type { LlmAttributes, McpAttributes, RequestAttributes } from "../core/request-attributes.ts";
import { attemptsText, llmModel, mcpItem, mcpServer, type RequestValues, stepsText } from "./finished-request.ts";
import {
  COLUMN_INDEX,
  COLUMNS,
  type Column,
  chargesText,
  type HistoryRow,
  IS_NULLABLE,
  IS_NUMBER,
  type RowValue,
} from "./history/history-row.ts";
import type { LogValue } from "./log/logger.ts";
import type { RequestRecord } from "./trace/record.ts";
import { redactUrl, shortSessionId } from "./trace/redact.ts";

type FieldValue = string | number | readonly string[] | null | undefined;

interface Field<From> {
  /** Absent values are null in a record, and omitted in the access log and in spans. */
  value(from: From): FieldValue;
  readonly log?: string;
  readonly span?: string;
  readonly record?: string;
  readonly column?: Column;
  /** The history stores the value multiplied by this. */
  readonly scale?: number;
  /** The history stores an absent value as an empty string. */
  readonly isOptional?: true;
}

const same = (name: string) => ({ log: name, span: name });

const usage = (name: string) => same(`gen_ai.usage.${name}`);

const rounded = (ms: number): number => Math.round(ms * 1000) / 1000;

const REQUEST_FIELDS = [
  { value: ({ id }) => id, log: "id", span: "gateway.request.id", record: "id", column: "request_id" },
  { value: ({ recordId }) => recordId, log: "recordId", column: "id" },
  { value: ({ startedAt }) => startedAt, column: "time" },
  {
    value: ({ listener }) => listener,
    log: "gateway",
    span: "gateway.listener",
    record: "listener",
    column: "listener",
  },
  {
    value: ({ route }) => route,
    log: "route",
    span: "gateway.route",
    record: "route",
    column: "route",
    isOptional: true,
  },
  {
    value: ({ backend }) => backend,
    log: "backend",
    span: "gateway.backend",
    record: "backend",
    column: "backend",
    isOptional: true,
  },
  { value: ({ source }) => `${source.address}:${source.port}`, log: "src" },
  { value: ({ clientAddress }) => clientAddress, span: "client.address", column: "client" },
  { value: ({ source }) => source.client && source.address, span: "network.peer.address" },
  { value: ({ method }) => method, log: "method", span: "http.request.method", record: "method", column: "method" },
  { value: ({ scheme }) => scheme, span: "url.scheme" },
  { value: ({ host }) => host, log: "host", record: "host", column: "host" },
  { value: ({ path }) => path, log: "path", span: "url.path", record: "path", column: "path" },
  { value: ({ version }) => version, span: "network.protocol.version" },
  { value: ({ headers }) => headers.get("user-agent"), span: "user_agent.original" },
  {
    value: ({ status }) => status,
    log: "status",
    span: "http.response.status_code",
    record: "status",
    column: "status",
  },
  { value: ({ result }) => result, log: "outcome", column: "result" },
  {
    value: ({ failure, status = 0 }) => failure?.code ?? (status >= 500 ? String(status) : undefined),
    span: "error.type",
  },
  {
    value: ({ durationMs }) => rounded(durationMs),
    log: "durationMs",
    record: "durationMs",
    column: "duration_us",
    scale: 1000,
  },
  { value: ({ firstByteMs }) => firstByteMs, column: "first_byte_us", scale: 1000 },
  { value: ({ upstreamMs }) => upstreamMs && rounded(upstreamMs), record: "upstreamMs" },
  { value: ({ answeredBy }) => answeredBy, record: "answeredBy" },
  { value: ({ responseBytes }) => responseBytes, log: "bytes", record: "responseBytes", column: "response_bytes" },
  { value: ({ rawPath, path }) => (rawPath === path ? undefined : rawPath), log: "rawPath" },
  { value: ({ source }) => source.client, log: "client" },
  { value: ({ end }) => end, record: "end", column: "response_end" },
  { value: ({ end }) => (end === "complete" ? undefined : end), log: "end" },
  { value: ({ subject }) => subject, log: "user", record: "subject", column: "subject", isOptional: true },
  { value: ({ attributes: { jwt } }) => stringOrUndefined(jwt?.sub), log: "jwt.sub" },
  { value: ({ attributes: { apiKey } }) => stringOrUndefined(apiKey?.user_id), log: "apiKey.user_id" },
  { value: ({ attributes: { apiKey } }) => stringOrUndefined(apiKey?.name), log: "apiKey.name" },
  { value: ({ attributes: { apiKey } }) => stringOrUndefined(apiKey?.team), log: "apiKey.team" },
  { value: ({ key }) => key, column: "key" },
  { value: ({ attributes: { apiKey, jwt } }) => stringOrUndefined(apiKey?.team ?? jwt?.team), column: "team" },
] as const satisfies readonly Field<RequestValues>[];

const MCP_FIELDS: readonly Field<McpAttributes>[] = [
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

const LLM_FIELDS: readonly Field<LlmAttributes>[] = [
  { value: ({ provider }) => provider, ...same("gen_ai.provider.name"), record: "provider", column: "provider" },
  { value: ({ requestModel }) => requestModel, ...same("gen_ai.request.model") },
  { value: ({ responseModel }) => responseModel, ...same("gen_ai.response.model") },
  { value: llmModel, record: "model", column: "model" },
  { value: ({ providerRequestId }) => providerRequestId, ...same("gen_ai.provider.request_id") },
  {
    value: ({ inputTokens }) => inputTokens,
    ...usage("input_tokens"),
    record: "inputTokens",
    column: "input_tokens",
  },
  {
    value: ({ outputTokens }) => outputTokens,
    ...usage("output_tokens"),
    record: "outputTokens",
    column: "output_tokens",
  },
  {
    value: ({ cachedInputTokens }) => cachedInputTokens,
    ...usage("cache_read.input_tokens"),
    record: "cachedTokens",
    column: "cached_tokens",
  },
  {
    value: ({ cacheCreationInputTokens }) => cacheCreationInputTokens,
    ...usage("cache_creation.input_tokens"),
    column: "cache_write_tokens",
  },
  {
    value: ({ reasoningTokens }) => reasoningTokens,
    ...usage("reasoning.output_tokens"),
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

/** The fields that explain the outcome. The access log has them at the end of a line. */
const OUTCOME_FIELDS: readonly Field<RequestValues>[] = [
  { value: ({ attempts }) => attempts && attemptsText(attempts), log: "attempts" },
  { value: ({ traceId }) => traceId, log: "trace_id", column: "trace_id" },
  { value: ({ spanId }) => spanId, log: "span_id" },
  {
    value: ({ shadowDenials }) => shadowDenials && [...new Set(shadowDenials.map(({ policy }) => policy))],
    log: "shadow",
  },
  { value: ({ failure }) => failure?.code, log: "error", column: "reason" },
  { value: ({ failure }) => failure?.source, log: "source" },
  { value: ({ reason }) => reason, log: "reason", column: "message" },
  { value: ({ steps }) => stepsText(steps, true), column: "policies" },
  { value: ({ spent }) => chargesText(spent), column: "charges" },
];

type Fields = Record<string, unknown>;

function fieldAdder<From>(all: readonly Field<From>[], output: "log" | "span"): (to: Fields, from: From) => void {
  const fields = all.flatMap(({ [output]: name, value }) => (name === undefined ? [] : [{ name, value }]));
  return (to, from) => {
    for (const { name, value } of fields) {
      const one = value(from);
      if (one !== undefined && one !== null) to[name] = typeof one === "object" ? one.join(",") : one;
    }
  };
}

export const addSpanFields = {
  request: fieldAdder<RequestValues>(REQUEST_FIELDS, "span"),
  mcp: fieldAdder(MCP_FIELDS, "span"),
  llm: fieldAdder(LLM_FIELDS, "span"),
};

const addLogFields = {
  request: fieldAdder<RequestValues>(REQUEST_FIELDS, "log"),
  mcp: fieldAdder(MCP_FIELDS, "log"),
  llm: fieldAdder(LLM_FIELDS, "log"),
  outcome: fieldAdder(OUTCOME_FIELDS, "log"),
};

/** Copies of this object have a shape in common, which the engine reads faster than objects with names added one by one. */
const NO_LOG_FIELDS: Readonly<Record<string, LogValue>> = Object.fromEntries(
  [...REQUEST_FIELDS, ...MCP_FIELDS, ...LLM_FIELDS, ...OUTCOME_FIELDS].flatMap((field) =>
    "log" in field ? [[field.log, undefined]] : [],
  ),
);

/** Absent values are undefined. */
export function logFields(values: RequestValues): Record<string, LogValue> {
  const { mcp, llm } = values.attributes;
  const fields = { ...NO_LOG_FIELDS };
  addLogFields.request(fields, values);
  if (mcp !== undefined) addLogFields.mcp(fields, mcp);
  if (llm !== undefined) addLogFields.llm(fields, llm);
  addLogFields.outcome(fields, values);
  return fields;
}

const EMPTY_ROW: readonly RowValue[] = COLUMNS.map((_name, i) => (IS_NULLABLE[i] ? null : IS_NUMBER[i] ? 0 : ""));

function rowWriter<From>(all: readonly Field<From>[]): (row: RowValue[], from: From) => void {
  const fields = all.flatMap(({ column, value, scale = 1 }) =>
    column === undefined ? [] : [{ index: COLUMN_INDEX[column], value, scale }],
  );
  return (row, from) => {
    for (const { index, value, scale } of fields) {
      const one = value(from) as RowValue | undefined;
      if (one !== undefined && one !== null)
        row[index] = typeof one === "number" && scale !== 1 ? Math.round(one * scale) : one;
    }
  };
}

const writeRow = {
  request: rowWriter<RequestValues>([...REQUEST_FIELDS, ...OUTCOME_FIELDS]),
  mcp: rowWriter(MCP_FIELDS),
  llm: rowWriter(LLM_FIELDS),
};

/** Returns the row of the history, without its details. */
export function historyRow(values: RequestValues): RowValue[] {
  const { mcp, llm } = values.attributes;
  const row = EMPTY_ROW.slice();
  writeRow.request(row, values);
  if (mcp !== undefined) writeRow.mcp(row, mcp);
  if (llm !== undefined) writeRow.llm(row, llm);
  return row;
}

type RecordName = Extract<(typeof REQUEST_FIELDS)[number], { readonly record: string }>["record"];

function recordFields<From>(all: readonly Field<From>[], read: (field: Field<From>) => unknown): Fields {
  const record: Fields = {};
  for (const field of all) if (field.record !== undefined) record[field.record] = read(field) ?? null;
  return record;
}

/** The history stores absent values as zero or an empty string, so records of calls omit both. */
function callFields<From>(all: readonly Field<From>[], read: (field: Field<From>) => unknown): Fields | undefined {
  const present = Object.entries(recordFields(all, read)).filter(([, value]) => value);
  return present.length === 0 ? undefined : Object.fromEntries(present);
}

type CallRecords = Pick<RequestRecord, "mcp" | "llm">;

export function callRecords({ mcp, llm }: Pick<RequestAttributes, "mcp" | "llm">): CallRecords {
  return {
    ...(mcp && { mcp: callFields(MCP_FIELDS, ({ value }) => value(mcp)) ?? {} }),
    ...(llm && { llm: callFields(LLM_FIELDS, ({ value }) => value(llm)) ?? {} }),
  };
}

/** Returns the fields of `/debug/requests` that have a row in the table. */
export function requestRecordFields(values: RequestValues): Pick<RequestRecord, RecordName> & CallRecords {
  return {
    ...(recordFields<RequestValues>(REQUEST_FIELDS, ({ value }) => value(values)) as Pick<RequestRecord, RecordName>),
    ...callRecords(values.attributes),
  };
}

/** Returns the same fields of a stored request. Those that the history does not store are null. */
export function storedRecordFields(row: HistoryRow): Pick<RequestRecord, RecordName> & CallRecords {
  const read = ({ column, scale = 1, isOptional }: Field<never>): unknown => {
    const stored = column && row[column];
    return typeof stored === "number" ? stored / scale : isOptional ? stored || null : stored;
  };
  const mcp = callFields(MCP_FIELDS, read);
  const llm = callFields(LLM_FIELDS, read);
  return {
    ...(recordFields<RequestValues>(REQUEST_FIELDS, read) as Pick<RequestRecord, RecordName>),
    ...(mcp && { mcp }),
    ...(llm && { llm }),
  };
}
