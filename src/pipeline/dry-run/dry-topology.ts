/**
 * What a dry run does in place of policies and backends that send requests. The configuration must be compiled with
 * `dryEnv` and separate services (`openDryConfig`), because its limits count during a run.
 */
import type { Backend, BackendRun, ResponseReceiver } from "../../core/backend.ts";
import type { DryEnv } from "../../core/dry-env.ts";
import { type Exchange, StateKey } from "../../core/exchange.ts";
import type { Topology } from "../../core/topology.ts";
import { HeaderList } from "../../http/headers.ts";
import type { DryRequest } from "./dry-request.ts";

const NO_RUN: BackendRun = { abort: () => undefined, resume: () => undefined };

export interface Walk extends Pick<DryRequest, "given" | "recorded" | "attributes"> {
  called?: Exchange["request"];
  /** If true, the charges of limits are kept and the `settle` hooks run. */
  readonly keepsCharges: boolean;
  skippedCalls?: Set<string>;
  ended?: { readonly error: unknown };
  onEnd?: () => void;
}

export const ownWalk = new StateKey<Walk>();

export const dryEnv: DryEnv = {
  given: (exchange) => exchange.state(ownWalk)?.given,
  recorded: (exchange) => exchange.state(ownWalk)?.recorded,
  skipped(exchange, kind) {
    const walk = exchange.state(ownWalk);
    if (walk === undefined) return;
    walk.skippedCalls ??= new Set();
    walk.skippedCalls.add(kind);
  },
};

/** Replaces the backends. */
export function dryTopology({ listeners }: Topology): Topology {
  return {
    listeners: listeners.map((listener) => ({
      ...listener,
      routes: listener.routes.map((route) => ({
        ...route,
        backends: route.backends.map((one) => ({ ...one, backend: dryBackend(one.backend) })),
      })),
    })),
  };
}

function dryBackend(backend: Backend): Backend {
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
              : inner.call(backend, exchange),
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
