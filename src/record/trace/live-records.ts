/**
 * Defines what a request in flight collects for its outputs: the spans of a sampled request, the audit trail, and the
 * comparison with a mirror.
 */
import type { Phase } from "./record.ts";

interface TraceParent {
  readonly traceId: string;
  readonly spanId: string;
  readonly sampled: boolean;
}

const SAMPLED = 1;
const NO_TRACE = "0".repeat(32);
const NO_SPAN = "0".repeat(16);
/** A later version may add fields at the end. Version 00 has none, and ff is not a version. */
const FORM = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

export function parseTraceparent(text: string): TraceParent | undefined {
  const found = FORM.exec(text);
  if (found === null) return undefined;
  const [, version, traceId = "", spanId = "", flags = "", more] = found;
  if (version === "ff" || (version === "00" && more !== undefined)) return undefined;
  if (traceId === NO_TRACE || spanId === NO_SPAN) return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED };
}

export function formatTraceparent({ traceId, spanId, sampled }: TraceParent): string {
  return `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`;
}

/** Longer values are dropped. Section 3.3.1.5 of the recommendation asks for at least 512 characters. */
const TRACESTATE_CHARS = 8_192;

export function usableTracestate(text: string | undefined): string | undefined {
  return text === undefined || text === "" || text.length > TRACESTATE_CHARS ? undefined : text;
}

export interface AuditTrail {
  /** Called when an MCP request has been parsed. `params` are the client's parameters. */
  asked(id: string, method: string, params: Readonly<Record<string, unknown>>): void;
  /** Called when the request ended. `answer` is the text of the server's message, if any. */
  ended(id: string, target: string, outcome: string, answer: string | undefined): void;
  /** Called when a backend starts to respond. The returned observer receives the bytes that are sent to the client. */
  answered(
    status: number,
    contentType: string | undefined,
    contentEncoding: string | undefined,
  ): AnswerObserver | undefined;
  /** Throws if a record is required and cannot be written. */
  check(): void;
}

export interface AnswerObserver {
  data(chunk: Buffer): void;
  end(complete: boolean): void;
}

export interface MirrorComparison {
  readonly mirror: string;
  readonly failed?: string;
  /** A difference looks like `status 200 → 500` or `$.items[].id: number → string`. */
  readonly status?: string;
  readonly shape?: readonly string[];
  /** False if the JSON shapes could not be compared, for example because a body was too large or not JSON. */
  readonly hasShape: boolean;
  /** Times are measured from the request to the response head. */
  readonly backendMs: number;
  readonly mirrorMs: number;
  readonly isSlower: boolean;
}

export interface Mirrored {
  readonly found: MirrorComparison[];
  pending: number;
  onLate: ((found: MirrorComparison) => void) | undefined;
}

const MAX_PHASES = 64;

export interface RecordedPhase {
  readonly phase: Phase;
  readonly startMs: number;
  endMs: number | undefined;
  /** The steps from `firstStep` to `endStep` (exclusive) ran in this phase. */
  readonly firstStep: number;
  endStep: number;
}

interface SpanStart {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string | undefined;
  readonly tracestate: string | undefined;
  readonly isDetailed: boolean;
  readonly steps: { readonly length: number };
  newSpanId(): string;
}

export class RequestSpans {
  traceId: string;
  readonly spanId: string;
  parentId: string | undefined;
  tracestate: string | undefined;
  readonly isDetailed: boolean;
  readonly phases: RecordedPhase[] = [];
  callId: string | undefined = undefined;
  callStartMs: number | undefined = undefined;
  readonly #newSpanId: () => string;
  readonly #steps: { readonly length: number };
  #isOwnSpan = false;
  #isCallTaken = false;

  constructor(start: SpanStart) {
    this.traceId = start.traceId;
    this.spanId = start.spanId;
    this.parentId = start.parentId;
    this.tracestate = start.tracestate;
    this.isDetailed = start.isDetailed;
    this.#newSpanId = start.newSpanId;
    this.#steps = start.steps;
  }

  /**
   * Starts a call or another attempt, and returns the `traceparent` for the backend. A call to an LLM or to MCP servers
   * is one span over all of its attempts. For other backends, each attempt is a call.
   */
  nextCall(protocol: "http" | "mcp" | "llm"): string {
    this.#isOwnSpan = protocol !== "http";
    if (!this.isDetailed) this.callId = this.spanId;
    else if (!this.#isOwnSpan || this.callId === undefined) this.callId = this.#newSpanId();
    this.#isCallTaken = this.#isOwnSpan;
    return this.traceparent();
  }

  traceparent(): string {
    return formatTraceparent({ traceId: this.traceId, spanId: this.callId ?? this.spanId, sampled: true });
  }

  /** Sets the client's span from the body if no header named a parent span. */
  adopt(parent: TraceParent, tracestate: string | undefined): void {
    if (this.parentId !== undefined) return;
    this.traceId = parent.traceId;
    this.parentId = parent.spanId;
    this.tracestate = tracestate;
  }

  enter(phase: Phase, nowMs: number): void {
    if (!this.isDetailed) return;
    this.leave(nowMs);
    if (this.phases.length >= MAX_PHASES) return;
    const { length } = this.#steps;
    this.phases.push({ phase, startMs: nowMs, endMs: undefined, firstStep: length, endStep: length });
  }

  leave(nowMs: number): void {
    const last = this.phases.at(-1);
    if (last === undefined || last.endMs !== undefined) return;
    last.endMs = nowMs;
    last.endStep = this.#steps.length;
  }

  called(nowMs: number): void {
    this.leave(nowMs);
    this.callStartMs ??= nowMs;
  }

  /** Returns the ID of the next attempt's span. The first attempt of a call over HTTP is the call itself. */
  attemptSpanId(): string | undefined {
    if (!this.isDetailed) return undefined;
    const spanId = this.#isCallTaken || this.callId === undefined ? this.#newSpanId() : this.callId;
    this.#isCallTaken = true;
    return spanId;
  }
}
