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
import { type FinishedRequest, parseStep, type RequestValues, recordedLimits } from "./finished-request.ts";
import { COLUMN_INDEX, type Column, type HistoryRow, type RowValue, type RowValues } from "./history/history-row.ts";
import { MAX_NAME_CHARS, oneLine } from "./history/row-batch.ts";
import { historyRow, storedRecordFields } from "./request-fields.ts";
import { explainRequest } from "./trace/explain.ts";
import type { RequestDetail, RequestRecord } from "./trace/record.ts";
import type { Redaction } from "./trace/redact.ts";

const DETAILS_INPUT = peerInput("history/details");
const DAY_MS = 86_400_000;
const MAX_LONG_CHARS = 1_000;

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

export function createHistoryRecorder(
  redaction: Redaction,
  team: string | undefined,
  add: (row: RowValues) => void,
): HistoryRecorder {
  const teamExpression = team === undefined ? undefined : compileExpression(team);
  return ({ exchange, values }) => {
    const row = historyRow(values);
    if (teamExpression !== undefined) row[COLUMN_INDEX.team] = teamOf(teamExpression, exchange);
    row[COLUMN_INDEX.details] = detailsText(values, redaction);
    // Secrets of the configuration are redacted later, once for a text that many rows have in common.
    hideCredentials(row, exchange, redaction);
    add(row);
  };
}

/** The columns of texts that come from the client or can quote it, with their longest values. */
const CLIENT_TEXTS = Object.entries({
  path: MAX_LONG_CHARS,
  method: MAX_NAME_CHARS,
  host: MAX_NAME_CHARS,
  request_id: Number.POSITIVE_INFINITY,
  subject: MAX_NAME_CHARS,
  key: MAX_NAME_CHARS,
  team: MAX_NAME_CHARS,
  mcp_method: MAX_NAME_CHARS,
  tool: MAX_NAME_CHARS,
  model: MAX_NAME_CHARS,
  message: MAX_LONG_CHARS,
} satisfies Partial<Record<Column, number>>).map(([name, maxChars]) => ({ i: COLUMN_INDEX[name as Column], maxChars }));

/** Shortens the texts of the client, and redacts the credentials of the request in them. */
function hideCredentials(row: RowValue[], { sentPairs, credentials }: Exchange, redaction: Redaction): void {
  let longest = 0;
  for (const { i, maxChars } of CLIENT_TEXTS) {
    const text = row[i] as string;
    if (text.length > maxChars) row[i] = text.slice(0, maxChars);
    longest = Math.max(longest, Math.min(text.length, maxChars));
  }
  if (!redaction.couldQuote(longest, sentPairs, credentials.secrets)) return;
  const text = CLIENT_TEXTS.map(({ i }) => oneLine(row[i] as string)).join("\n");
  const shown = redaction.scrub(text, sentPairs, credentials.secrets);
  if (shown !== text) for (const [at, one] of shown.split("\n").entries()) row[CLIENT_TEXTS[at]?.i as number] = one;
}

const MAX_DETAILS_CHARS = 4_000;
const DETAILS = ["rules", "limits", "attempts", "shadow"] as const satisfies readonly (keyof RequestRecord)[];
type Details = { [Name in (typeof DETAILS)[number]]: RequestRecord[Name] | undefined };

/**
 * Returns what explains the outcome of a request, or an empty string for a request that succeeded at once, because most
 * requests do. Parts that are too long are left out.
 */
function detailsText(values: RequestValues, redaction: Redaction): string {
  const { result, attempts, rules, shadowDenials, headers, credentials } = values;
  if (result === "ok" && attempts === undefined && shadowDenials === undefined) return "";
  const details: Details = {
    rules,
    limits: recordedLimits(values),
    attempts,
    shadow: shadowDenials?.map(({ policy, detail }) => ({
      policy,
      reason: redaction.scrub(detail, headers.pairs, credentials.secrets),
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

function teamOf(expression: Expression, exchange: Exchange): string {
  const result = expression.evaluate(exchange.celAttributes);
  return result.ok && typeof result.value === "string" ? result.value : "";
}

/** The record has no headers, policy times, or sequence number. */
export function recordFromRow(row: HistoryRow): RequestRecord {
  return {
    ...storedRecordFields(row),
    // Sorts before all records with a sequence number.
    seq: -1,
    time: new Date(row.time).toISOString(),
    source: { address: row.client, port: 0 },
    answeredBy: row.status === null ? null : row.first_byte_us === null ? "gateway" : "upstream",
    isShort: true,
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
