/**
 * A topology for dry runs: the compiled hooks of the real one, with the services shut. Tokens may be given instead of
 * verified, backends answer 200 without being called, services are not asked, and nothing is settled or logged.
 * It must have been compiled with services of its own, because its limits count while a request is walked through.
 */
import type { Backend, BackendCall, BackendRun } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Charge, CompiledPolicy, CompiledScope, Hooks, Outcome } from "../../core/policy.ts";
import type { Listener, Route, Topology } from "../../core/topology.ts";
import { HeaderList } from "../../http/headers.ts";
import type { DryRequest } from "./dry-request.ts";

const NO_RUN: BackendRun = { abort: () => undefined, resume: () => undefined };

/** One walk: what stands for credentials and body, and what the shut services tell. */
export interface Walk extends Pick<DryRequest, "given" | "recorded" | "facts"> {
  /** The request as the backend would get it. */
  called?: Exchange["request"];
  /** To be given back. Undefined: they stay taken, and limits are settled with what the recorded facts say. */
  readonly charges: Charge[] | undefined;
  /** Policies that would have sent something. */
  notAsked?: Set<string>;
  ended?: { readonly error: unknown };
  onEnd?: () => void;
}

/** Those that have not ended. */
export type Walks = Map<Exchange, Walk>;

export function dryTopology({ listeners }: Topology, walks: Walks): Topology {
  const policies = new Map<CompiledPolicy, CompiledPolicy>();
  const dryPolicy = (policy: CompiledPolicy): CompiledPolicy => {
    const known = policies.get(policy);
    if (known) return known;
    const made = { ...policy, hooks: dryHooks(policy, walks) };
    policies.set(policy, made);
    return made;
  };
  const scopes = new Map<CompiledScope, CompiledScope>();
  const dryScope = (scope: CompiledScope): CompiledScope => {
    const known = scopes.get(scope) ?? shut(scope);
    scopes.set(scope, known);
    return known;
  };
  const shut = (scope: CompiledScope): CompiledScope => {
    const all = (list: readonly CompiledPolicy[]): CompiledPolicy[] => list.map(dryPolicy);
    return {
      ...scope,
      access: all(scope.access),
      admit: all(scope.admit),
      shape: all(scope.shape),
      parsed: all(scope.parsed),
      admitParsed: all(scope.admitParsed),
      llmRequest: all(scope.llmRequest),
      response: all(scope.response),
      settle: all(scope.settle),
      ...(scope.preface ? { preface: dryScope(scope.preface) } : {}),
    };
  };
  const dryRoute = (route: Route): Route => ({
    ...route,
    policies: dryScope(route.policies),
    backends: route.backends.map((one) => ({
      weight: one.weight,
      ...(one.canary ? { canary: one.canary } : {}),
      backend: dryBackend(one.backend, walks, dryScope),
      policies: dryScope(one.policies),
    })),
  });
  const dryListener = (listener: Listener): Listener => ({
    ...listener,
    policies: dryScope(listener.policies),
    unmatched: dryScope(listener.unmatched),
    routes: listener.routes.map(dryRoute),
  });
  return { listeners: listeners.map(dryListener) };
}

function dryHooks({ kind, hooks }: CompiledPolicy, walks: Walks): Hooks {
  const { request, assume, recall, admit, admitParsed, llmRequest, settle } = hooks;
  const free = (hook: NonNullable<Hooks["admit"]>) => (exchange: Exchange) => counted(hook(exchange), exchange, walks);
  return {
    ...hooks,
    ...(hooks.sends ? { request: (exchange: Exchange) => notAsked(exchange, kind, walks) } : {}),
    ...(request && (assume || recall)
      ? {
          request(exchange: Exchange) {
            const walk = walks.get(exchange);
            if (walk?.recorded && recall) return recall(exchange, walk.recorded);
            return walk?.given && assume ? assume(exchange, walk.given) : request(exchange);
          },
        }
      : {}),
    ...(settle
      ? {
          settle(exchange: Exchange, outcome: Outcome) {
            const walk = walks.get(exchange);
            if (walk && !walk.charges) settle(exchange, outcome);
          },
        }
      : {}),
    ...(admit ? { admit: free(admit) } : {}),
    ...(admitParsed ? { admitParsed: free(admitParsed) } : {}),
    ...(llmRequest ? { llmRequest: free(llmRequest) } : {}),
  };
}

function notAsked(exchange: Exchange, kind: string, walks: Walks): undefined {
  const walk = walks.get(exchange);
  if (walk === undefined) return;
  walk.notAsked ??= new Set();
  walk.notAsked.add(kind);
}

/** Remembered, to be given back; a service that would count with its answer is not asked. */
function counted(charge: Charge | undefined, exchange: Exchange, walks: Walks): Charge | undefined {
  if (charge === undefined) return undefined;
  walks.get(exchange)?.charges?.push(charge);
  return { take: () => charge.take(), giveBack: () => charge.giveBack() };
}

function dryBackend(backend: Backend, walks: Walks, dryScope: (scope: CompiledScope) => CompiledScope): Backend {
  const { facts, defaultTimeoutMs, prepare, recall, inner } = backend;
  return {
    facts,
    defaultTimeoutMs,
    ...(prepare
      ? {
          prepare(exchange: Exchange, needsModel: boolean) {
            const given = walks.get(exchange)?.facts;
            if (given?.mcp !== undefined) exchange.facts.mcp = { ...given.mcp };
            if (given?.llm !== undefined) {
              if (recall) recall.call(backend, exchange, given.llm);
              else exchange.facts.llm = { ...given.llm };
            }
            const { method, body } = exchange.request;
            // Nothing was said of the body: what depends on it is not judged, and not rejected as an empty one.
            if (given !== undefined || (method === "POST" && body.kind === "none")) return undefined;
            return prepare.call(backend, exchange, needsModel);
          },
        }
      : {}),
    ...(inner
      ? {
          inner: (exchange: Exchange) =>
            // As above: of a body that is not known, neither is the model.
            exchange.request.method === "POST" && exchange.facts.llm === undefined
              ? []
              : inner.call(backend, exchange).map(dryScope),
        }
      : {}),
    call(exchange: Exchange, call: BackendCall) {
      const walk = walks.get(exchange);
      if (walk) walk.called = exchange.request;
      call.head(200, new HeaderList());
      call.end();
      return NO_RUN;
    },
    describe: () => ({}),
  };
}
