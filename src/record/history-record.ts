/**
 * Maps a finished request to a row of the history database, and a row to the shape of `/debug/requests`.
 */
import { z } from "zod";
import { peerInput } from "../base/peer-inputs.ts";
import { compileExpression, type Expression } from "../cel/expression.ts";
import { failureSource } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import { celSource, duration } from "../core/schema.ts";
import { readJson } from "../json/read-json.ts";
import {
  type FinishedRequest,
  llmModel,
  mcpItem,
  mcpServer,
  nonzero,
  parseStep,
  recordedLimits,
  stepsText,
} from "./finished-request.ts";
import { chargesText, type HistoryRow, type RowValues } from "./history/history-row.ts";
import { oneLine, shortName } from "./history/row-batch.ts";
import { explainRequest } from "./trace/explain.ts";
import type { RequestDetail, RequestRecord } from "./trace/record.ts";
import { type Redaction, shortSessionId } from "./trace/redact.ts";

const DETAILS_INPUT = peerInput("history/details");
const DAY_MS = 86_400_000;
const MAX_LONG_CHARS = 1_000;
const PER_DOLLAR = 1_000_000_000;

export const historySchema = z.strictObject({
  folder: z
    .string()
    .min(1)
    .default("history")
    .describe(
      "The folder of the SQLite database and of rows that wait for the database, relative to this file. Only one gateway at a time can use it. Default: history.",
    ),
  postgres: z
    .string()
    .refine(isPostgresUrl, "expected postgres://[user:password@]host[:port]/database")
    // The URL may contain a password.
    .meta({
      secret: true,
      description:
        "`postgres://[user:password@]host[:port]/database`, which any number of replicas can share. Without it, the gateway uses SQLite.",
    })
    .optional(),
  keepRows: duration()
    .default(30 * DAY_MS)
    .describe("How long rows of single requests are kept. Default: 30d."),
  keepUsage: duration()
    .default(400 * DAY_MS)
    .describe("How long the usage by hour is kept. Default: 400d."),
  maxQueueRows: z
    .int()
    .min(1_000)
    .max(1_000_000)
    .default(10_000)
    .describe("Rows that wait in memory. If there are more, the oldest are dropped. Default: 10000."),
  maxSpoolBytes: z
    .int()
    .min(1024 * 1024)
    .default(256 * 1024 * 1024)
    .describe(
      "The size of the files with rows that wait for the database. If they are larger, the oldest rows are dropped. Default: 268435456.",
    ),
  team: celSource()
    .optional()
    .describe(
      "A CEL expression for the team of a request, for example `jwt.groups[0]`. Default: `team` in the metadata of the API key or in the token.",
    ),
});

function isPostgresUrl(text: string): boolean {
  return /^postgres(?:ql)?:\/\//.test(text) && URL.canParse(text);
}

export type HistoryRecorder = (finished: FinishedRequest) => void;

export interface HistoryRecorderOptions {
  readonly redaction: Redaction;
  readonly team: string | undefined;
  add(row: RowValues): void;
}

export function createHistoryRecorder({ redaction, team, add }: HistoryRecorderOptions): HistoryRecorder {
  const teamExpression = team === undefined ? undefined : compileExpression(team);
  return (finished) => add(historyRow(finished, redaction, teamExpression));
}

/** Secrets of the configuration are redacted later, once for a text that many rows have in common. */
function historyRow(
  finished: FinishedRequest,
  redaction: Redaction,
  teamExpression: Expression | undefined,
): RowValues {
  const { exchange } = finished;
  const { attributes, arrived, failure, upstream } = exchange;
  const { mcp, llm } = attributes;
  const [path, host, requestId, subject, key, team, tool, model, message] = withoutCredentials(exchange, redaction, [
    long(exchange.originalPath),
    shortName(redaction.host(exchange.originalHost)),
    exchange.id,
    shortName(finished.subject ?? ""),
    shortName(finished.key ?? ""),
    shortName(teamExpression === undefined ? defaultTeam(attributes) : teamOf(teamExpression, exchange)),
    shortName((mcp && mcpItem(mcp)) ?? ""),
    shortName((llm && llmModel(llm)) ?? ""),
    long(finished.reason ?? ""),
  ]);
  return [
    exchange.recordId,
    exchange.startedAt,
    Math.round(finished.durationMs * 1000),
    upstream.headMs === undefined || !upstream.isCalled
      ? null
      : Math.max(0, Math.round((upstream.headMs - exchange.startedMs) * 1000)),
    exchange.listener,
    exchange.route ?? "",
    attributes.backend?.name ?? "",
    shortName(arrived.method),
    host,
    path,
    requestId,
    exchange.clientAddress,
    subject,
    key,
    team,
    shortName(mcp?.methodName ?? ""),
    (mcp && mcpServer(mcp)) ?? "",
    tool,
    mcp?.sessionId === undefined ? "" : shortSessionId(mcp.sessionId),
    mcp?.outcome ?? "",
    model,
    llm?.provider ?? "",
    finished.status ?? null,
    finished.end,
    finished.result,
    failure?.code ?? "",
    message,
    llm?.inputTokens ?? 0,
    llm?.outputTokens ?? 0,
    llm?.cachedInputTokens ?? 0,
    llm?.cacheCreationInputTokens ?? 0,
    llm?.reasoningTokens ?? 0,
    llm?.cost === undefined ? 0 : Math.round(llm.cost * PER_DOLLAR),
    finished.responseBytes,
    stepsText(exchange.steps, true),
    exchange.records.spans?.traceId ?? "",
    chargesText(exchange.limits.spent),
    detailsText(finished, redaction),
  ];
}

const MAX_DETAILS_CHARS = 4_000;
const DETAILS = ["rules", "limits", "attempts", "shadow"] as const satisfies readonly (keyof RequestRecord)[];
type Details = { [Name in (typeof DETAILS)[number]]: RequestRecord[Name] | undefined };

/**
 * Returns what explains the outcome of a request, or an empty string for a request that succeeded at once, because most
 * requests do. Parts that are too long are left out.
 */
function detailsText(finished: FinishedRequest, redaction: Redaction): string {
  const { exchange, result } = finished;
  const { limits, shadow, arrived, credentials } = exchange;
  const attempts = finished.attempts(redaction);
  if (result === "ok" && attempts === undefined && shadow.denials === undefined) return "";
  const { readings, budgetReadings } = limits;
  const details: Details = {
    rules: finished.rules(redaction),
    limits: readings || budgetReadings ? recordedLimits(readings, budgetReadings) : undefined,
    attempts,
    shadow: shadow.denials?.map(({ policy, detail }) => ({
      policy,
      reason: redaction.scrub(detail, arrived.headers.pairs, credentials.secrets),
    })),
  };
  let text = "";
  for (const name of DETAILS) {
    const part = details[name] && JSON.stringify(details[name]);
    if (part !== undefined && text.length + part.length < MAX_DETAILS_CHARS)
      text += `${text === "" ? "{" : ","}"${name}":${part}`;
  }
  return text === "" ? "" : `${text}}`;
}

/** The reader of the database checks no shapes, because only the gateway writes it. */
export function parseDetails(text: string): Pick<RequestRecord, (typeof DETAILS)[number]> {
  return text === "" ? {} : (readJson(DETAILS_INPUT, text) as Pick<RequestRecord, (typeof DETAILS)[number]>);
}

type ClientTexts = readonly [string, string, string, string, string, string, string, string, string];

/** Redacts credentials of the request in texts that come from the client or can quote it. */
function withoutCredentials(exchange: Exchange, redaction: Redaction, texts: ClientTexts): ClientTexts {
  const { sentPairs, credentials } = exchange;
  let longest = 0;
  for (const { length } of texts) if (length > longest) longest = length;
  if (!redaction.couldQuote(longest, sentPairs, credentials.secrets)) return texts;
  const text = texts.map(oneLine).join("\n");
  const shown = redaction.scrub(text, sentPairs, credentials.secrets);
  return shown === text ? texts : (shown.split("\n") as unknown as ClientTexts);
}

function long(text: string): string {
  return text.length > MAX_LONG_CHARS ? text.slice(0, MAX_LONG_CHARS) : text;
}

function defaultTeam({ apiKey, jwt }: Exchange["attributes"]): string {
  const team = apiKey?.team ?? jwt?.team;
  return typeof team === "string" ? team : "";
}

function teamOf(expression: Expression, exchange: Exchange): string {
  const result = expression.evaluate(exchange.celAttributes);
  return result.ok && typeof result.value === "string" ? result.value : "";
}

/** The record has no headers, policy times, or sequence number. */
export function recordFromRow(row: HistoryRow): RequestRecord {
  const isMcp = row.mcp_method !== "" || row.server !== "";
  const isLlm = row.model !== "" || row.provider !== "";
  return {
    // Sorts before all records with a sequence number.
    seq: -1,
    id: row.request_id,
    time: new Date(row.time).toISOString(),
    durationMs: row.duration_us / 1000,
    listener: row.listener,
    route: row.route || null,
    backend: row.backend || null,
    method: row.method,
    host: row.host,
    path: row.path,
    source: { address: row.client, port: 0 },
    status: row.status,
    answeredBy: row.status === null ? null : row.first_byte_us === null ? "gateway" : "upstream",
    end: row.response_end as RequestRecord["end"],
    responseBytes: row.response_bytes,
    // The row has the time from the arrival to the first byte, which includes the time of the gateway.
    upstreamMs: null,
    subject: row.subject || null,
    isShort: true,
    ...(isMcp
      ? {
          mcp: filled({
            method: row.mcp_method,
            target: row.server,
            name: row.tool,
            session: row.session,
            outcome: row.mcp_outcome,
          }),
        }
      : {}),
    ...(isLlm
      ? {
          llm: {
            ...filled({ provider: row.provider, model: row.model }),
            ...nonzero({
              inputTokens: row.input_tokens,
              outputTokens: row.output_tokens,
              cachedTokens: row.cached_tokens,
              cost: row.cost_nano / PER_DOLLAR,
            }),
          },
        }
      : {}),
    steps: row.policies === "" ? [] : row.policies.split(",").map(stepOf),
    ...(row.reason === "" ? {} : { failure: failureOf(row) }),
    ...parseDetails(row.details),
  };
}

export function detailFromRow(row: HistoryRow): RequestDetail {
  const record = recordFromRow(row);
  const { method, host, path } = record;
  return { ...record, story: explainRequest(record), requestState: { request: { method, host, path } } };
}

/** The message of a row is the detail, if there was one. */
function failureOf({ reason, message, result }: HistoryRow): NonNullable<RequestRecord["failure"]> {
  // A server can also reject a request because of the client, for example because of an unknown tool.
  const source = result === "rejected" ? "client" : failureSource(reason);
  return { code: reason, source, message: message || reason };
}

/** Parses a step with its phase, such as `route jwtAuth=refused`. */
function stepOf(text: string): RequestRecord["steps"][number] {
  const [phase, ...policy] = text.split(" ");
  return parseStep(phase === "gateway" || phase === "backend" ? phase : "route", policy.join(" "));
}

function filled<Fields extends Record<string, string>>(fields: Fields): Partial<Fields> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== "")) as Partial<Fields>;
}
