/**
 * Identifies the spans of a sampled request, and collects the start and end of its policy phases.
 */
import type { Phase } from "./events.ts";
import { formatTraceparent, type TraceParent } from "./trace-context.ts";

const MAX_PHASES = 64;

export interface RecordedPhase {
  readonly phase: Phase;
  readonly startMs: number;
  endMs: number | undefined;
  /** The steps from `firstStep` to `endStep` (exclusive) ran in this phase. */
  readonly firstStep: number;
  endStep: number;
}

export interface SpanStart {
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
