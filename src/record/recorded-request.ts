/**
 * Records a request for rehearsals, with its head, the identity, the attributes of its MCP or LLM message, and the
 * outcome, but without its body.
 */

import { peerInput } from "../base/peer-inputs.ts";
import type { Exchange } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import { requestSubject, shownPrincipal } from "../core/principal.ts";
import type { Claims, LlmAttributes, McpAttributes } from "../core/request-attributes.ts";
import type { Source } from "../core/source.ts";
import { readJson } from "../json/read-json.ts";
import { REDACTED, type Redaction, withoutCopies } from "./trace/redact.ts";

const ATTRIBUTES = peerInput("gateway/recorded-attributes");

export interface RecordedRequest {
  readonly id: string;
  /** The time is in milliseconds since the epoch. */
  readonly at: number;
  readonly durationMs: number;
  readonly listener: string;
  readonly method: string;
  readonly scheme: "http" | "https";
  readonly host: string;
  /** The path is stored as received, because a rehearsal parses it like the listener. */
  readonly path: string;
  readonly query: string;
  readonly source: string;
  readonly client?: string;
  readonly identity?: string;
  readonly route: string | null;
  readonly status: number | null;
  readonly code: string | null;
  readonly subject: string | null;
  /** Lists the policies that ran, each with its verdict unless it passed. */
  readonly policies: readonly string[];
  /** Principals look like `key:1f0a…` or `basic:"alice"`. */
  readonly principals: readonly string[];
  readonly claims?: Claims;
  readonly apiKey?: Readonly<Record<string, unknown>>;
  readonly mcp?: McpAttributes;
  readonly llm?: LlmAttributes;
  /** Alternates names and values. */
  readonly headers: readonly string[];
}

/** This separator cannot occur in a request head or in the output of `JSON.stringify`. */
const FIELD = "\n";
const FIXED_FIELDS = 21;

/** Many requests share the same claims and keys, so each object is serialized once. */
const written = new WeakMap<object, string>();

export function recordText(exchange: Exchange, outcome: Outcome, durationMs: number, redaction: Redaction): string {
  const {
    arrived,
    attributes,
    source,
    failure,
    identity: { principal },
    credentials: { query: credentialQuery },
  } = exchange;
  const pairs = exchange.sentPairs;
  const query = exchange.originalQuery === "" ? "" : redaction.query(exchange.originalQuery, credentialQuery);
  const identity = source.identity === undefined ? "" : oneLine(source.identity);
  const principals =
    attributes.apiKey === undefined && attributes.basicAuth === undefined ? "" : shownPrincipals(principal);
  let text = `${exchange.startedAt}\n${exchange.id}\n${Math.round(durationMs * 1000)}\n${exchange.listener}\n${arrived.method}\n${arrived.scheme}\n${redaction.host(exchange.originalHost)}\n${arrived.rawPath}\n${query}\n${sourceText(source)}\n${identity}\n${exchange.route ?? ""}\n${outcome.status ?? ""}\n${failure?.code ?? ""}\n${subjectText(attributes)}\n${policiesText(exchange)}\n${principals}\n${jsonOnce(attributes.jwt)}\n${jsonOnce(attributes.apiKey)}\n${mcpText(attributes.mcp)}\n${llmText(attributes.llm)}`;
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    if (!redaction.isSensitive(name)) text += `\n${name}\n${pairs[i + 1]}`;
  }
  const secrets = redaction.secrets(pairs);
  if (exchange.credentials.secrets !== undefined) secrets.push(...exchange.credentials.secrets);
  return redaction.text(withoutRepeated(text, secrets));
}

function sourceText({ address, client }: Source): string {
  return client === undefined ? address : `${address} ${client}`;
}

export function recordTime(text: string): number {
  return Number(text.slice(0, text.indexOf(FIELD)));
}

export type ParseJson = (text: string) => unknown;

function readAttributes(text: string): unknown {
  return readJson(ATTRIBUTES, text);
}

/** Parses untrusted text. Returns undefined if it is not a record. */
export function readRecord(text: string, parse: ParseJson = readAttributes): RecordedRequest | undefined {
  const fields = text.split(FIELD);
  const at = Number(fields[0]);
  if (fields.length < FIXED_FIELDS || !Number.isFinite(at)) return undefined;
  const field = (index: number): string => fields[index] as string;
  const status = field(12);
  const record: { -readonly [Name in keyof RecordedRequest]: RecordedRequest[Name] } = {
    at,
    id: field(1),
    durationMs: Number(field(2)) / 1000,
    listener: field(3),
    method: field(4),
    scheme: field(5) === "https" ? "https" : "http",
    host: field(6),
    path: field(7),
    query: field(8),
    source: field(9).split(" ", 1)[0] as string,
    route: field(11) || null,
    status: status === "" ? null : Number(status),
    code: field(13) || null,
    subject: field(14) || null,
    policies: field(15) === "" ? [] : field(15).split(","),
    principals: field(16) === "" ? [] : field(16).split("\t"),
    headers: fields.slice(FIXED_FIELDS),
  };
  const client = field(9).split(" ")[1];
  if (client !== undefined) record.client = client;
  if (field(10) !== "") record.identity = field(10);
  const claims = parseObject(field(17), parse);
  if (claims !== undefined) record.claims = claims as Claims;
  const apiKey = parseObject(field(18), parse);
  if (apiKey !== undefined) record.apiKey = apiKey as Record<string, unknown>;
  const mcp = parseObject(field(19), parse);
  if (mcp !== undefined) record.mcp = mcp as McpAttributes;
  const llm = parseObject(field(20), parse);
  if (llm !== undefined) record.llm = llm as LlmAttributes;
  return record;
}

function policiesText({ steps }: Exchange): string {
  let text = "";
  for (const { policy, verdict } of steps)
    text += `${text === "" ? "" : ","}${policy}${verdict === "passed" ? "" : `=${verdict}`}`;
  return text;
}

function shownPrincipals(principal: string | undefined): string {
  return principal === undefined ? "" : shownPrincipal(principal).replaceAll("\n", "\t");
}

function jsonOnce(value: object | undefined): string {
  if (value === undefined) return "";
  const known = written.get(value);
  if (known !== undefined) return known;
  let text = "";
  try {
    text = JSON.stringify(value) ?? "";
  } catch {
    // Values that cannot be serialized are omitted.
  }
  written.set(value, text);
  return text;
}

/** Omits the session id, which can be a credential. */
function mcpText(mcp: McpAttributes | undefined): string {
  if (mcp === undefined) return "";
  const { methodName, target, tool, prompt, resource } = mcp;
  const text = (): string => JSON.stringify({ methodName, target, tool, prompt, resource });
  if (tool === undefined || prompt !== undefined || resource !== undefined) return text();
  const { name } = tool;
  // Consecutive calls often use the same tool.
  if (
    lastCall?.name !== name ||
    lastCall.target !== target ||
    lastCall.owner !== tool.target ||
    lastCall.methodName !== methodName
  )
    lastCall = { name, target, owner: tool.target, methodName, text: text() };
  return lastCall.text;
}

let lastCall:
  | { name: string; target: string | undefined; owner: string; methodName: string | undefined; text: string }
  | undefined;

function llmText(llm: LlmAttributes | undefined): string {
  if (llm === undefined) return "";
  const { requestModel, responseModel, provider, streaming, inputTokens, outputTokens, totalTokens } = llm;
  const { estimatedTokens, maxOutputTokens } = llm;
  const counts = { inputTokens, outputTokens, totalTokens, estimatedTokens, maxOutputTokens };
  return JSON.stringify({ requestModel, responseModel, provider, streaming, ...counts });
}

/**
 * Redacts copies of secrets. Long values are redacted anywhere, and short values only if they are a whole header value.
 */
function withoutRepeated(text: string, secrets: readonly string[]): string {
  // Nearly all texts repeat no secret, and a search creates no copy of the text.
  if (!secrets.some((secret) => text.includes(secret))) return text;
  const shown = withoutCopies(text, secrets);
  const short = secrets.filter((secret) => shown.includes(`${FIELD}${secret}`));
  if (short.length === 0) return shown;
  return shown
    .split(FIELD)
    .map((field, i) => (i > FIXED_FIELDS && short.includes(field) ? REDACTED : field))
    .join(FIELD);
}

function subjectText(attributes: Exchange["attributes"]): string {
  return attributes.jwt === undefined && attributes.apiKey === undefined && attributes.basicAuth === undefined
    ? ""
    : oneLine(requestSubject(attributes) ?? "");
}

function oneLine(text: string): string {
  return text.includes("\n") || text.includes("\0") ? text.replace(/[\n\0]+/g, " ") : text;
}

function parseObject(text: string, parse: ParseJson): object | undefined {
  if (text === "") return undefined;
  try {
    const value = parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
