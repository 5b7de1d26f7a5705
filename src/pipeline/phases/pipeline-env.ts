/**
 * Defines the dependencies of the pipeline.
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Outcome } from "../../core/policy.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { Listener } from "../../core/topology.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import type { Trace } from "../../record/trace/trace.ts";
import type { RouteTable } from "../route/match-route.ts";

export interface PipelineEnv {
  readonly clock: Clock;
  readonly redaction: Redaction;
  random(): number;
  /** Returns a trace if a watcher's filter matches the exchange or its trace is recorded. */
  trace(exchange: Exchange): Trace | undefined;
  /** Called when a request has ended, after its settle hooks. */
  settled(exchange: Exchange, outcome: Outcome): void;
  defect(exchange: Exchange, error: unknown): void;
  /** Set for dry runs. `settles` returns whether the `settle` hooks run, which correct the charges of limits. */
  readonly dry?: { settles(exchange: Exchange): boolean };
  forwardToThread?(served: Served, exchange: Exchange, sink: ClientSink): boolean;
}

export interface Served {
  readonly listener: Listener;
  readonly table: RouteTable;
}
