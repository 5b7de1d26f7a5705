/**
 * Runs a described or recorded request through the pipeline without calling its backend.
 */
import type { Clock } from "../../base/clock.ts";
import { ERRORS, GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { Listener, Topology } from "../../core/topology.ts";
import type { RecordedRequest } from "../../record/recorded-request.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import { trustedPeers } from "../listen/request-entry.ts";
import { handle } from "../phases/pipeline.ts";
import type { PipelineEnv, Served } from "../phases/pipeline-env.ts";
import { createRouteTable } from "../route/match-route.ts";
import { buildReport, checkItem, type DryReport, refusedAtEdge } from "./dry-report.ts";
import { type DryRequest, dryExchange, recordedExchange, selectListener } from "./dry-request.ts";
import { dryTopology, ownWalk, type Walk } from "./dry-topology.ts";

/** Bounds a run whose hook never decides. */
const MAX_WALK_MS = 10_000;

export interface DryOptions {
  /** The request runs this many times (by default once), and the last run is reported. */
  readonly repeat?: number;
  /** If true, the charges of limits are not refunded. */
  readonly keep?: boolean;
}

export interface WalkOptions {
  readonly isFree?: boolean;
  /** Replaces the recorded identity. */
  readonly client?: Pick<DryRequest, "given" | "recorded">;
}

export interface Walked {
  readonly exchange: Exchange;
  readonly called: Exchange["request"] | undefined;
}

export interface DryRunner {
  run(request: DryRequest, options?: DryOptions): Promise<DryReport>;
  /**
   * Keeps the charges of limits unless `isFree`. Throws or rejects if the listener rejects the request or it cannot be
   * run.
   */
  walk(recorded: RecordedRequest, options?: WalkOptions): Walked | Promise<Walked>;
  readonly redaction: Redaction;
}

/** `topology` must be compiled with separate services (see `dry-topology.ts`). */
export function createDryRunner(
  topology: Topology,
  redaction: Redaction,
  clock: Clock,
  trustedProxies: readonly string[] = [],
): DryRunner {
  const isTrustedPeer = trustedPeers(trustedProxies);
  const { listeners } = dryTopology(topology);
  const served = new Map<Listener, Served>();
  const getServed = (listener: Listener): Served => {
    const known = served.get(listener) ?? { listener, table: createRouteTable(listener.routes) };
    served.set(listener, known);
    return known;
  };
  const end = (exchange: Exchange, error: unknown): void => {
    const walk = exchange.state(ownWalk);
    if (walk === undefined || walk.ended !== undefined) return;
    walk.ended = { error };
    walk.onEnd?.();
  };
  const env: PipelineEnv = {
    clock,
    redaction,
    random: () => 0,
    trace: () => undefined,
    settled: (exchange) => end(exchange, undefined),
    defect: end,
    dry: {
      settles(exchange) {
        const walk = exchange.state(ownWalk);
        return walk?.keepsCharges === true && walk.ended === undefined;
      },
    },
  };

  /** Throws or rejects if the run has a defect or does not end in time. */
  function finish(listener: Listener, exchange: Exchange, walk: Walk): undefined | Promise<void> {
    exchange.setState(ownWalk, walk);
    handle(env, getServed(listener), exchange, openSink());
    if (walk.ended === undefined)
      return new Promise((resolve, reject) => {
        const timer = clock.after(MAX_WALK_MS, () => end(exchange, new Error("a policy did not decide in time")));
        walk.onEnd = () => {
          timer.cancel();
          const error = walk.ended?.error;
          if (error === undefined) resolve();
          else reject(error);
        };
      });
    if (walk.ended.error !== undefined) throw walk.ended.error;
    return undefined;
  }

  return {
    redaction,
    async run(request, { repeat = 1, keep = false } = {}) {
      const listener = selectListener(listeners, request);
      const { given, recorded, attributes } = request;
      const walked: Exchange[] = [];
      try {
        for (let i = 1; ; i++) {
          let exchange: Exchange;
          try {
            exchange = dryExchange(request, listener, clock, isTrustedPeer);
          } catch (thrown) {
            return refusedAtEdge(listener, thrown);
          }
          walked.push(exchange);
          const walk: Walk = { given, recorded, attributes, keepsCharges: keep };
          await finish(listener, exchange, walk);
          if (i >= repeat) return buildReport(exchange, listener, walk, redaction);
        }
      } finally {
        if (!keep) walked.forEach(giveBack);
      }
    },
    walk(recorded, { isFree = false, client } = {}) {
      const listener = selectListener(listeners, { method: recorded.method, url: "/", listener: recorded.listener });
      const { claims, principals, mcp, llm } = recorded;
      const walk: Walk = {
        ...(client ?? { recorded: { claims, principals } }),
        attributes: { mcp, llm },
        keepsCharges: !isFree,
      };
      const exchange = recordedExchange(recorded, listener, clock);
      const walked = (): Walked => {
        if (isFree) giveBack(exchange);
        return { exchange, called: walk.called };
      };
      const waiting = finish(listener, exchange, walk);
      return waiting === undefined ? walked() : waiting.then(walked);
    },
  };
}

function giveBack({ limits: { charges } }: Exchange): void {
  for (const charge of charges ?? []) charge.giveBack();
}

function openSink(): ClientSink {
  const sink: ClientSink = {
    head: () => undefined,
    write: () => true,
    end: () => sink.onClose?.(true),
    destroy: () => sink.onClose?.(false),
    upgrade: () => sink.onClose?.(false),
    askForBody: () => undefined,
    isUploading: () => false,
    onDrain: undefined,
    onStalled: undefined,
    onClose: undefined,
  };
  return sink;
}

export interface Verdict {
  readonly route: string | null;
  readonly outcome: DryReport["outcome"];
  readonly status: number;
  readonly code: string | null;
  readonly reason: string | null;
  /** Alternates names and values. Undefined if the headers are unknown. */
  readonly requestHeaders: readonly string[] | undefined;
  readonly responseHeaders: readonly string[] | undefined;
}

export function walkRecorded(recorded: RecordedRequest, runner: DryRunner): Verdict | Promise<Verdict> {
  try {
    const walked = runner.walk(recorded);
    return walked instanceof Promise ? walked.then(toVerdict, failedVerdict) : toVerdict(walked);
  } catch (error) {
    return failedVerdict(error);
  }
}

function toVerdict({ exchange, called }: Walked): Verdict {
  // Checking the item may record the reason why it is hidden.
  const item = exchange.attributes.mcp && checkItem(exchange, called !== undefined);
  const { failure, response } = exchange;
  const outcome = called && item?.visible !== false ? "forwarded" : failure ? "refused" : "answered";
  return {
    route: exchange.route ?? null,
    outcome,
    status: response?.status ?? 0,
    code: outcome === "refused" ? (failure?.code ?? null) : null,
    reason: outcome === "refused" ? (failure?.detail ?? failure?.message ?? null) : null,
    requestHeaders: called?.headers.pairs,
    responseHeaders: response?.headers.pairs,
  };
}

/** Handles a request that the listener rejects, whose listener does not exist, or whose run failed. */
function failedVerdict(error: unknown): Verdict {
  const nothing = { route: null, outcome: "refused", requestHeaders: undefined, responseHeaders: undefined } as const;
  if (error instanceof GatewayError) {
    const { status, code, message, detail } = error;
    return { ...nothing, status, code, reason: detail ?? message };
  }
  return { ...nothing, status: 0, code: "not_served", reason: (error as Error).message };
}

/** A request without an error of source `client` counts as forwarded. */
export function recordedVerdict({ route, status, code }: RecordedRequest): Verdict {
  const isRefused = code !== null && ERRORS[code as keyof typeof ERRORS]?.source === "client";
  return {
    route,
    outcome: isRefused ? "refused" : "forwarded",
    status: isRefused ? (status ?? 0) : 200,
    code: isRefused ? code : null,
    reason: isRefused ? code : null,
    requestHeaders: undefined,
    responseHeaders: undefined,
  };
}
