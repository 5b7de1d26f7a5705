/**
 * What is noted of a sampled request while it runs, so that its spans can be built when it has ended: when each phase
 * of policies began and ended, and when which target was asked. A request that is not sampled has none of it.
 */
import type { Phase } from "./events.ts";
import { formatTraceparent, type TraceParent } from "./trace-context.ts";

/** A rule of retries may try often, and an MCP request may go to many servers: beyond this only a number is kept. */
const NOTED_AT_MOST = 64;

export interface NotedPhase {
  readonly phase: Phase;
  readonly startMs: number;
  endMs: number | undefined;
  /** Which of the request's steps ran in it: from, and up to but without. */
  readonly firstStep: number;
  endStep: number;
}

export interface NotedAttempt {
  readonly spanId: string;
  readonly target: string;
  readonly startMs: number;
  /** Undefined while it answers: then it ends with the request. */
  endMs: number | undefined;
  status: number | undefined;
  error: string | undefined;
}

export interface SpanStart {
  readonly traceId: string;
  /** Of the span of the request. */
  readonly spanId: string;
  /** Of the client's span. */
  readonly parentId: string | undefined;
  readonly tracestate: string | undefined;
  /** Whether phases, calls and attempts get spans of their own. */
  readonly isDetailed: boolean;
  /** Of the request; grows while it runs. */
  readonly steps: { readonly length: number };
  newSpanId(): string;
}

export class RequestSpans {
  traceId: string;
  readonly spanId: string;
  parentId: string | undefined;
  tracestate: string | undefined;
  readonly isDetailed: boolean;
  readonly phases: NotedPhase[] = [];
  readonly attempts: NotedAttempt[] = [];
  /** Attempts that have no span because there were too many. */
  leftOut = 0;
  /** Of the call to the backend: what the backend's own spans hang on. */
  callId: string | undefined = undefined;
  callStartMs: number | undefined = undefined;
  readonly #newSpanId: () => string;
  readonly #steps: { readonly length: number };
  /** The call has a span of its own, with those of its attempts below it. */
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
   * The backend is called, for the first time or again; the value of `traceparent` for it. A call to an LLM or to MCP
   * servers is one span over all of its attempts; elsewhere each attempt is the call.
   */
  nextCall(protocol: "http" | "mcp" | "llm"): string {
    this.#isOwnSpan = protocol !== "http";
    if (!this.isDetailed) this.callId = this.spanId;
    else if (!this.#isOwnSpan || this.callId === undefined) this.callId = this.#newSpanId();
    this.#isCallTaken = this.#isOwnSpan;
    return this.traceparent();
  }

  /** Of the call that runs. */
  traceparent(): string {
    return formatTraceparent({ traceId: this.traceId, spanId: this.callId ?? this.spanId, sampled: true });
  }

  /** The body names the client's span, and no header did. */
  adopt(parent: TraceParent, tracestate: string | undefined): void {
    if (this.parentId !== undefined) return;
    this.traceId = parent.traceId;
    this.parentId = parent.spanId;
    this.tracestate = tracestate;
  }

  enter(phase: Phase, nowMs: number): void {
    if (!this.isDetailed) return;
    this.leave(nowMs);
    if (this.phases.length >= NOTED_AT_MOST) return;
    const { length } = this.#steps;
    this.phases.push({ phase, startMs: nowMs, endMs: undefined, firstStep: length, endStep: length });
  }

  /** The phase that runs, if one does, has ended. */
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

  asked(target: string, nowMs: number): void {
    if (!this.isDetailed) return;
    if (this.attempts.length >= NOTED_AT_MOST) {
      this.leftOut += 1;
      return;
    }
    const spanId = this.#isCallTaken || this.callId === undefined ? this.#newSpanId() : this.callId;
    this.#isCallTaken = true;
    this.attempts.push({ spanId, target, startMs: nowMs, endMs: undefined, status: undefined, error: undefined });
  }

  /** Of this target, or of the one that was asked last. */
  answered(status: number | null, error: string | null, target: string | undefined, nowMs: number): void {
    for (let i = this.attempts.length - 1; i >= 0; i--) {
      const one = this.attempts[i] as NotedAttempt;
      const isOpen = one.status === undefined && one.error === undefined;
      if (!isOpen || (target !== undefined && one.target !== target)) continue;
      if (status !== null) one.status = status;
      if (error !== null) one.error = error;
      if (error !== null || this.attempts.length > 1) one.endMs = nowMs;
      return;
    }
  }
}
