/**
 * The dependencies of the pipeline: time, redaction, randomness, and the receivers of finished requests.
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Outcome } from "../../core/policy.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { Listener } from "../../core/topology.ts";
import type { Redaction } from "../../observe/trace/redact.ts";
import type { Trace } from "../../observe/trace/trace.ts";
import type { RouteTable } from "../route/match-route.ts";

export interface PipelineEnv {
  readonly clock: Clock;
  readonly redaction: Redaction;
  random(): number;
  /** Returns the trace for this exchange, if a client waits for one like it. */
  trace(exchange: Exchange): Trace | undefined;
  /** Called after the settle hooks: access log, metrics, recent requests. */
  settled(exchange: Exchange, outcome: Outcome): void;
  /** Logs an unexpected exception. */
  defect(exchange: Exchange, error: unknown): void;
  /** With several threads: returns true if another thread serves this request, to which it was forwarded. */
  forwardToThread?(served: Served, exchange: Exchange, sink: ClientSink): boolean;
}

/** A listener as requests see it: its compiled configuration and the table of its routes. */
export interface Served {
  readonly listener: Listener;
  readonly table: RouteTable;
}
