/**
 * Writes audit records of MCP tool calls, prompts, resource reads, and LLM calls.
 */

import { createHash, createHmac } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import { GatewayError } from "../core/errors.ts";
import { type Exchange, StateKey } from "../core/exchange.ts";
import { requestSubject, stringOrUndefined } from "../core/principal.ts";
import { markLocal, secret } from "../core/schema.ts";
import { type ContentReport, createContentReader } from "../llm/usage/response-content.ts";
import { shown } from "./access-log.ts";
import { type FinishedRequest, llmModel, type RequestValues } from "./finished-request.ts";
import type { LogFields, LogValue } from "./log/logger.ts";
import type { AnswerObserver, AuditTrail } from "./trace/live-records.ts";
import { type Redaction, redactJson } from "./trace/redact.ts";

const MIB = 1024 * 1024;

export const auditSchema = z
  .strictObject({
    file: markLocal(
      z.strictObject({
        path: z
          .string()
          .min(1)
          .describe("The file, relative to this file; one JSON object per line, readable by the gateway's user only."),
        maxBytes: z
          .int()
          .min(64 * 1024)
          .default(100 * MIB)
          .describe(
            "The file size in bytes at which the file is renamed to `<path>.1` and a new one is started. Default: 104857600.",
          ),
        keep: z.int().min(0).max(1000).default(10).describe("The number of renamed files to keep. Default: 10."),
      }),
      { what: "a file" },
    )
      .optional()
      .describe("Writes records to a file. A relative path is resolved from the working directory."),
    otlp: z
      .boolean()
      .optional()
      .describe("Exports records as OTLP log records. Requires `config.telemetry.otlp` with `logs` in `signals`."),
    arguments: z
      .enum(["none", "hash", "whole"])
      .default("hash")
      .describe(
        "How to record the arguments of MCP calls and the bodies of LLM requests: not at all, as a SHA-256 hash, or as redacted text. Default: hash.",
      ),
    results: z
      .enum(["none", "hash", "whole"])
      .default("none")
      .describe(
        "How to record the results of MCP calls and the text of LLM responses: not at all, as a SHA-256 hash, or as redacted text. Default: none.",
      ),
    hashKey: secret()
      .optional()
      .describe("The key of the hashes (HMAC-SHA-256), which prevents guessing short arguments from their hashes."),
    maxValueChars: z
      .int()
      .min(64)
      .max(1024 * 1024)
      .default(16_384)
      .describe("The maximum length of recorded arguments and results. Longer ones are truncated. Default: 16384."),
    required: z
      .boolean()
      .default(false)
      .describe(
        "Whether calls are rejected (503 `audit_unavailable`) while the file cannot be written. Default: false.",
      ),
  })
  .refine(({ file, otlp }) => file !== undefined || otlp === true, "expected `file`, `otlp: true`, or both");

type AuditSettings = z.output<typeof auditSchema>;

/** Returns the problem of `config.audit.otlp` with the signals that `config.telemetry.otlp` exports. */
export function auditExportProblem(
  audit: AuditSettings | undefined,
  signals: readonly string[] | undefined,
): string | undefined {
  if (audit?.otlp !== true || signals?.includes("logs")) return undefined;
  return "needs `config.telemetry.otlp` with `logs` among its `signals`";
}

/**
 * The recorder keeps this many characters beyond the visible length, to recognize a credential that the limit would
 * cut.
 */
const MARGIN_CHARS = 32 * 1024;

interface RecordedValue {
  add(text: string): void;
  fields(): Record<string, LogValue>;
}

/** Other methods, such as lists and pings, are not audited. */
const AUDITED: ReadonlySet<string> = new Set(["tools/call", "prompts/get", "resources/read"]);

interface AuditEnv {
  readonly clock: Clock;
  readonly redaction: Redaction;
  record(fields: LogFields, exchange: Exchange): void;
  isWritable(): boolean;
}

export interface Audit {
  begin(exchange: Exchange): void;
  settled(finished: FinishedRequest): void;
}

interface AuditedCall {
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

export function createAudit(settings: AuditSettings, env: AuditEnv): Audit {
  const ownTrail = new StateKey<Trail>();
  return {
    begin(exchange) {
      const trail = new Trail(settings, env, exchange);
      exchange.setState(ownTrail, trail);
      exchange.records.audit = trail;
    },
    settled({ exchange, values }) {
      exchange.state(ownTrail)?.settled(values);
    },
  };
}

class Trail implements AuditTrail {
  readonly #settings: AuditSettings;
  readonly #env: AuditEnv;
  readonly #exchange: Exchange;
  #open: Map<string, AuditedCall> | undefined = undefined;
  /** Returns what the response to an LLM call adds to the record. Called once, after the end of the call. */
  #answerFields: (() => Record<string, LogValue>) | undefined = undefined;
  /** Results may repeat these credentials of the arguments. */
  readonly #secrets: string[] = [];

  constructor(settings: AuditSettings, env: AuditEnv, exchange: Exchange) {
    this.#settings = settings;
    this.#env = env;
    this.#exchange = exchange;
  }

  check(): void {
    if (this.#settings.required && !this.#env.isWritable()) throw new GatewayError("audit_unavailable");
  }

  asked(id: string, method: string, params: Readonly<Record<string, unknown>>): void {
    if (!AUDITED.has(method)) return;
    this.#open ??= new Map();
    this.#open.set(id, { method, params });
  }

  answered(status: number, contentType?: string, contentEncoding?: string): AnswerObserver | undefined {
    if (this.#exchange.attributes.backend?.protocol !== "llm" || status >= 400) return undefined;
    const value = this.#recorded("result", this.#settings.results);
    let hasText = false;
    let report: ContentReport | undefined;
    const onText = (part: string): void => {
      hasText = true;
      value?.add(part);
    };
    const content = createContentReader(contentType, contentEncoding, value && onText);
    this.#answerFields = () => ({
      finish: report?.finish,
      ...(hasText ? value?.fields() : {}),
      ...(report?.isWhole === false ? { result_unread: true } : {}),
    });
    return {
      data: content.data,
      end() {
        report ??= content.end();
      },
    };
  }

  ended(id: string, target: string, outcome: string, answer: string | undefined): void {
    const asked = this.#open?.get(id);
    if (asked === undefined) return;
    this.#open?.delete(id);
    const durationMs = this.#env.clock.monotonicMs() - this.#exchange.startedMs;
    this.#write({
      ...this.#mcp(asked, target),
      ...this.#value("result", this.#settings.results, () => answer),
      outcome,
      durationMs: Math.round(durationMs),
    });
  }

  settled({ status, result, end, durationMs, attributes, failure }: RequestValues): void {
    const { request } = this.#exchange;
    const ending = { status, error: failure?.code, durationMs: Math.round(durationMs) };
    if (attributes.llm !== undefined && attributes.backend?.protocol === "llm") {
      const { llm } = attributes;
      const { body } = request;
      if (body.kind === "bytes") this.#noteSecrets(() => body.bytes.toString());
      this.#write({
        kind: "llm",
        provider: llm.provider,
        model: llmModel(llm),
        ...this.#value("arguments", this.#settings.arguments, () =>
          body.kind === "bytes" ? body.bytes.toString() : undefined,
        ),
        inputTokens: llm.inputTokens,
        outputTokens: llm.outputTokens,
        cost: llm.cost,
        ...this.#answerFields?.(),
        outcome: result,
        ...ending,
      });
    }
    // On the HTTP+SSE transport, the response arrives later. A rejected call has no response.
    if (this.#open === undefined || (failure === undefined && end === "complete")) return;
    const notAnswered =
      result === "aborted" ? "aborted" : failure?.code === "authorization_denied" ? "denied" : "failed";
    for (const asked of this.#open.values())
      this.#write({ ...this.#mcp(asked, attributes.mcp?.target ?? ""), outcome: notAnswered, ...ending });
    this.#open = undefined;
  }

  #mcp({ method, params }: AuditedCall, target: string): Record<string, LogValue> {
    const name = params.name ?? params.uri;
    if (params.arguments !== undefined) this.#noteSecrets(() => sortedJson(params.arguments));
    return {
      kind: "mcp",
      method,
      target,
      name: typeof name === "string" ? name.slice(0, this.#settings.maxValueChars) : undefined,
      ...this.#value("arguments", this.#settings.arguments, () =>
        params.arguments === undefined ? undefined : sortedJson(params.arguments),
      ),
    };
  }

  #value(name: "arguments" | "result", how: AuditSettings["arguments"], read: () => string | undefined) {
    const value = this.#recorded(name, how);
    const text = value && read();
    if (value === undefined || text === undefined) return {};
    value.add(text);
    return value.fields();
  }

  #recorded(name: "arguments" | "result", how: AuditSettings["arguments"]): RecordedValue | undefined {
    const { hashKey, maxValueChars } = this.#settings;
    if (how === "none") return undefined;
    if (how === "hash") {
      const hash = hashKey === undefined ? createHash("sha256") : createHmac("sha256", hashKey);
      return {
        add: (text) => void hash.update(text),
        fields: () => ({ [`${name}_sha256`]: hash.digest("hex") }),
      };
    }
    let kept = "";
    let length = 0;
    return {
      add(text) {
        length += text.length;
        const room = maxValueChars + MARGIN_CHARS - kept.length;
        if (room > 0) kept += text.slice(0, room);
      },
      fields: () => ({
        [name]: shown(kept, this.#exchange, this.#env.redaction, {
          maxChars: maxValueChars,
          ...(name === "arguments" ? { found: this.#secrets } : { alsoHidden: this.#secrets }),
        }),
        ...(length > maxValueChars ? { [`${name}_cut`]: true } : {}),
      }),
    };
  }

  /**
   * If only the result is recorded in full, the arguments are still parsed, to redact their credentials in the result.
   */
  #noteSecrets(read: () => string): void {
    const { arguments: how, results, maxValueChars } = this.#settings;
    if (results === "whole" && how !== "whole")
      redactJson(read().slice(0, maxValueChars + MARGIN_CHARS), this.#secrets);
  }

  #write(fields: Record<string, LogValue>): void {
    const { id, recordId, listener, route, attributes, source, records } = this.#exchange;
    const { spans } = records;
    this.#env.record(
      {
        time: new Date(this.#env.clock.now()).toISOString(),
        recordId,
        id,
        trace_id: spans?.traceId,
        ...callerFields(this.#exchange),
        src: source.address,
        client: source.client,
        gateway: listener,
        route,
        backend: attributes.backend?.name,
        ...fields,
      },
      this.#exchange,
    );
  }
}

function callerFields({ attributes }: Exchange): Record<string, LogValue> {
  const { jwt, apiKey, basicAuth } = attributes;
  const auth = jwt ? "jwt" : apiKey ? "apiKey" : basicAuth ? "basic" : "none";
  return { auth, subject: requestSubject(attributes) ?? undefined, issuer: stringOrUndefined(jwt?.iss) };
}

/** Sorts the keys, so that equal arguments have the same hash. */
function sortedJson(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) return `[${value.map(sortedJson).join()}]`;
  const members = value as Readonly<Record<string, unknown>>;
  const names = Object.keys(members).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${sortedJson(members[name])}`).join()}}`;
}
