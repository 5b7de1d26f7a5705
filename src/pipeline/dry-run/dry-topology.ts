/**
 * Wraps the compiled hooks of a topology for dry runs. The topology must be compiled with separate services, because
 * its limits count during a run.
 */
import type { Backend, BackendRun, ResponseReceiver } from "../../core/backend.ts";
import { type Exchange, StateKey } from "../../core/exchange.ts";
import type { Charge, CompiledPolicy, CompiledScope, Hooks, Outcome } from "../../core/policy.ts";
import type { Listener, Route, Topology } from "../../core/topology.ts";
import { HeaderList } from "../../http/headers.ts";
import type { DryRequest } from "./dry-request.ts";

const NO_RUN: BackendRun = { abort: () => undefined, resume: () => undefined };

export interface Walk extends Pick<DryRequest, "given" | "recorded" | "attributes"> {
  called?: Exchange["request"];
  /** Lists charges to refund. If undefined, charges are kept and `settle` hooks run. */
  readonly charges: Charge[] | undefined;
  skippedCalls?: Set<string>;
  ended?: { readonly error: unknown };
  onEnd?: () => void;
}

export const ownWalk = new StateKey<Walk>();

export function dryTopology({ listeners }: Topology): Topology {
  const policies = new Map<CompiledPolicy, CompiledPolicy>();
  const dryPolicy = (policy: CompiledPolicy): CompiledPolicy => {
    const known = policies.get(policy);
    if (known) return known;
    const made = { ...policy, hooks: dryHooks(policy) };
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
      backend: dryBackend(one.backend, dryScope),
      policies: dryScope(one.policies),
    })),
  });
  const dryListener = (listener: Listener): Listener => ({
    ...listener,
    policies: dryScope(listener.policies),
    unmatched: dryScope(listener.unmatched),
    routes: listener.routes.map(dryRoute),
    ...(listener.sections === undefined
      ? {}
      : {
          sections: listener.sections.map((section) => ({
            ...section,
            policies: dryScope(section.policies),
            unmatched: dryScope(section.unmatched),
          })),
        }),
  });
  return { listeners: listeners.map(dryListener) };
}

function dryHooks({ kind, hooks }: CompiledPolicy): Hooks {
  const { request, assume, recall, admit, admitParsed, llmRequest, settle } = hooks;
  const free = (hook: NonNullable<Hooks["admit"]>) => (exchange: Exchange) => counted(hook(exchange), exchange);
  return {
    ...hooks,
    ...(hooks.sends ? { request: (exchange: Exchange) => skippedCalls(exchange, kind) } : {}),
    ...(request && (assume || recall)
      ? {
          request(exchange: Exchange) {
            const walk = exchange.state(ownWalk);
            if (walk?.recorded && recall) return recall(exchange, walk.recorded);
            return walk?.given && assume ? assume(exchange, walk.given) : request(exchange);
          },
        }
      : {}),
    ...(settle
      ? {
          settle(exchange: Exchange, outcome: Outcome) {
            const walk = exchange.state(ownWalk);
            if (walk && walk.ended === undefined && !walk.charges) settle(exchange, outcome);
          },
        }
      : {}),
    ...(admit ? { admit: free(admit) } : {}),
    ...(admitParsed ? { admitParsed: free(admitParsed) } : {}),
    ...(llmRequest ? { llmRequest: free(llmRequest) } : {}),
  };
}

function skippedCalls(exchange: Exchange, kind: string): undefined {
  const walk = exchange.state(ownWalk);
  if (walk === undefined) return;
  walk.skippedCalls ??= new Set();
  walk.skippedCalls.add(kind);
}

/** Records the charge for the refund and omits `confirm`, which would call an external service. */
function counted(charge: Charge | undefined, exchange: Exchange): Charge | undefined {
  if (charge === undefined) return undefined;
  exchange.state(ownWalk)?.charges?.push(charge);
  return { take: () => charge.take(), giveBack: () => charge.giveBack() };
}

function dryBackend(backend: Backend, dryScope: (scope: CompiledScope) => CompiledScope): Backend {
  const { attributes, defaultTimeoutMs, prepare, recall, inner } = backend;
  return {
    attributes,
    defaultTimeoutMs,
    ...(prepare
      ? {
          prepare(exchange: Exchange, needsModel: boolean, needsCall: boolean) {
            const given = exchange.state(ownWalk)?.attributes;
            if (given?.mcp !== undefined) exchange.attributes.mcp = { ...given.mcp };
            if (given?.llm !== undefined) {
              if (recall) recall.call(backend, exchange, given.llm);
              else exchange.attributes.llm = { ...given.llm };
            }
            const { method, body } = exchange.request;
            // `prepare` would reject a missing body.
            if (given !== undefined || (method === "POST" && body.kind === "none")) return undefined;
            return prepare.call(backend, exchange, needsModel, needsCall);
          },
        }
      : {}),
    ...(inner
      ? {
          inner: (exchange: Exchange) =>
            // Without the body, the model is unknown.
            exchange.request.method === "POST" && exchange.attributes.llm === undefined
              ? []
              : inner.call(backend, exchange).map(dryScope),
        }
      : {}),
    call(exchange: Exchange, call: ResponseReceiver) {
      const walk = exchange.state(ownWalk);
      if (walk) walk.called = exchange.request;
      call.head(200, new HeaderList());
      call.end();
      return NO_RUN;
    },
    describe: () => ({}),
  };
}
