/**
 * What the pipeline needs from the gateway: time, redaction, chance, and those who hear how a request ended.
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
  /** The trace for this exchange, if a client waits for one like it. */
  trace(exchange: Exchange): Trace | undefined;
  /** After the settle hooks: access log, metrics, recent requests. */
  settled(exchange: Exchange, outcome: Outcome): void;
  /** Something threw that never should: the log takes it. */
  defect(exchange: Exchange, error: unknown): void;
  /** Where several threads serve: true if another one has to serve this request, and gets it. */
  forwardToThread?(served: Served, exchange: Exchange, sink: ClientSink): boolean;
}

/** A listener as requests meet it: its compiled configuration and the table made from its routes. */
export interface Served {
  readonly listener: Listener;
  readonly table: RouteTable;
}
