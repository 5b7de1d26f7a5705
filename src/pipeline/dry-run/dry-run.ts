/**
 * Walks a described request through the real pipeline and reports what would become of it: the listener, the route, each
 * policy with its verdict, the limits, the backend, the status. Nothing is sent and nothing stays charged.
 */
import type { Exchange, Failure, LimitReading, ShadowDenial, Step } from "../../core/exchange.ts";
import { shownPrincipal } from "../../core/principal.ts";
import { asGatewayError } from "../../core/reply.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { Listener, Topology } from "../../core/topology.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import type { Clock } from "../../lib/process/clock.ts";
import type { Redaction } from "../../trace/redact.ts";
import { handle } from "../phases/pipeline.ts";
import type { PipelineEnv } from "../phases/pipeline-env.ts";
import { createRouteTable, type RouteTable } from "../route/match-route.ts";
import { type DryRequest, dryExchange, listenerOf } from "./dry-request.ts";
import { dryTopology, type Walk, type Walks } from "./dry-topology.ts";

/** No hook may keep a dry run waiting for something that is never asked. */
const MAX_WALK_MS = 10_000;

const NOT_ASKED = "not asked in a dry run, which sends nothing; it counts as agreeing";

export interface DryStep extends Pick<Step, "phase" | "policy" | "verdict"> {
  readonly reason?: string;
}

export interface DryReport {
  readonly listener: string;
  readonly route: string | null;
  /** 200 stands for "a backend is called": what it would answer is not known. */
  readonly status: number;
  /** `forwarded`: a backend is called. `answered`: the gateway answers, for example a redirect. `refused`: it rejects. */
  readonly outcome: "forwarded" | "answered" | "refused";
  readonly reason?: Pick<Failure, "code" | "message" | "detail">;
  /** Whom authentication policies let in. */
  readonly subject?: string;
  readonly policies: readonly DryStep[];
  /** What policies in shadow mode would deny. */
  readonly shadow: readonly ShadowDenial[];
  readonly limits: readonly Pick<LimitReading, "limit" | "remaining" | "resetSeconds">[];
  /** All of the route, by weight; the one that this walk took is `chosen`. */
  readonly backends: readonly { readonly name: string; readonly weight: number; readonly chosen: boolean }[];
  /** The item that the MCP message is about; `visible` if the client sees it in lists and may use it. */
  readonly item?: DryItem;
  /** The request as the backend gets it, credentials redacted. */
  readonly request?: {
    readonly method: string;
    readonly url: string;
    readonly headers: Readonly<Record<string, string | string[]>>;
  };
  readonly responseHeaders: Readonly<Record<string, string | string[]>>;
}

export interface DryItem {
  readonly kind: "tool" | "prompt" | "resource";
  readonly name: string;
  readonly target: string | null;
  readonly visible: boolean;
}

export interface DryOptions {
  /** How often the same request comes; the last is reported. Default: once, with full limits. */
  readonly repeat?: number;
  /** What limits took stays taken, as with real requests that come one after another. */
  readonly keep?: boolean;
}

export interface DryRunner {
  /** Rejects with an Error that says why the request cannot be walked. */
  run(request: DryRequest, options?: DryOptions): Promise<DryReport>;
}

/** `topology` must be compiled with doors of its own, see `dry-topology.ts`. `clock` only bounds the wait. */
export function createDryRunner(topology: Topology, redaction: Redaction, clock: Clock): DryRunner {
  const walks: Walks = new WeakMap();
  const { listeners } = dryTopology(topology, walks);
  const tables = new Map<Listener, RouteTable>();
  const tableOf = (listener: Listener): RouteTable => {
    const table = tables.get(listener) ?? createRouteTable(listener.routes);
    tables.set(listener, table);
    return table;
  };

  async function walkOnce(request: DryRequest, listener: Listener, walk: Walk): Promise<DryReport> {
    let exchange: Exchange;
    try {
      exchange = dryExchange(request, listener, clock);
    } catch (thrown) {
      return refusedAtEdge(listener, thrown);
    }
    walks.set(exchange, walk);
    await finished(listener, exchange);
    return reportOf(exchange, listener, walk, redaction);
  }

  function finished(listener: Listener, exchange: Exchange): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = clock.after(MAX_WALK_MS, () => reject(new Error("a policy did not decide in time")));
      const env: PipelineEnv = {
        clock,
        redaction,
        random: () => 0,
        trace: () => undefined,
        settled() {
          timer.cancel();
          resolve();
        },
        defect: (_, error) => reject(error),
      };
      handle(env, { listener, table: tableOf(listener) }, exchange, openSink());
    });
  }

  return {
    async run(request, { repeat = 1, keep = false } = {}) {
      const listener = listenerOf(listeners, request);
      const taken: Walk[] = [];
      try {
        for (let i = 1; ; i++) {
          const walk: Walk = { request, charges: [], notAsked: new Set(), keep };
          taken.push(walk);
          const report = await walkOnce(request, listener, walk);
          if (i >= repeat) return report;
        }
      } finally {
        if (!keep) for (const { charges } of taken) for (const charge of charges) charge.giveBack();
      }
    },
  };
}

/** A client that takes everything at once. */
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

function reportOf(exchange: Exchange, listener: Listener, walk: Walk, redaction: Redaction): DryReport {
  const { called } = walk;
  // Asking for the item may add the reason why it is hidden.
  const item = itemOf(exchange, called !== undefined);
  const { failure, response, principal, request } = exchange;
  const route = listener.routes.find(({ name }) => name === exchange.route);
  const status = response?.status ?? 0;
  const shown = called ?? request;
  const query = redaction.query(shown.query, exchange.credentialQuery);
  return {
    listener: listener.name,
    route: exchange.route ?? null,
    status,
    outcome: called && item?.visible !== false ? "forwarded" : failure ? "refused" : "answered",
    ...(failure ? { reason: { code: failure.code, message: failure.message, detail: failure.detail } } : {}),
    ...(principal === undefined ? {} : { subject: shownPrincipal(principal) }),
    policies: exchange.steps.map((step) => dryStep(step, failure, walk)),
    shadow: exchange.shadowDenials ?? [],
    limits: (exchange.limits ?? []).map(({ limit, remaining, resetSeconds }) => ({ limit, remaining, resetSeconds })),
    backends: (route?.backends ?? []).map(({ weight, backend }) => ({
      name: backend.facts.name,
      weight,
      chosen: called !== undefined && exchange.facts.backend === backend.facts,
    })),
    ...(item ? { item } : {}),
    ...(called
      ? {
          request: {
            method: called.method,
            url: `${called.scheme}://${called.host}${called.path}${query === "" ? "" : `?${query}`}`,
            headers: redaction.headers(called.headers.pairs, exchange.secrets),
          },
        }
      : {}),
    responseHeaders: shownHeaders(response?.headers, redaction),
  };
}

function dryStep({ phase, policy, verdict }: Step, failure: Failure | undefined, { notAsked }: Walk): DryStep {
  const refused = verdict === "refused" && failure ? (failure.detail ?? failure.message) : undefined;
  const reason = notAsked.has(policy) ? NOT_ASKED : refused;
  return { phase, policy, verdict, ...(reason === undefined ? {} : { reason }) };
}

/** What the backend would ask the rules of `mcpAuthorization` before it passes the call on. */
function itemOf(exchange: Exchange, isCalled: boolean): DryItem | undefined {
  const { mcp } = exchange.facts;
  if (mcp === undefined) return undefined;
  const kind = mcp.tool ? "tool" : mcp.prompt ? "prompt" : mcp.resource ? "resource" : undefined;
  if (kind === undefined) return undefined;
  const target = mcp[kind]?.target ?? "";
  const name = mcp.resource?.uri ?? mcp.tool?.name ?? mcp.prompt?.name ?? "";
  const visible = isCalled && mayUse(exchange, kind, name, target);
  return { kind, name, target: target === "" ? null : target, visible };
}

function mayUse({ mcpAccess, facts }: Exchange, kind: DryItem["kind"], name: string, target: string): boolean {
  if (mcpAccess === undefined) return true;
  try {
    const tool = facts.mcp?.tool as { readonly arguments?: unknown } | undefined;
    const call = kind === "tool" ? { arguments: tool?.arguments } : undefined;
    return mcpAccess.allows(kind, name, target, call);
  } catch {
    // Arguments that are too large to be judged.
    return false;
  }
}

function shownHeaders(headers: HeaderList | undefined, redaction: Redaction): DryReport["responseHeaders"] {
  return headers === undefined ? {} : redaction.headers(headers.pairs);
}

function refusedAtEdge(listener: Listener, thrown: unknown): DryReport {
  const { code, message, detail, status } = asGatewayError(thrown);
  return {
    listener: listener.name,
    route: null,
    status,
    outcome: "refused",
    reason: { code, message, detail },
    policies: [],
    shadow: [],
    limits: [],
    backends: [],
    responseHeaders: {},
  };
}
