/**
 * What a dry run does in place of policies and backends that send requests. The configuration must be compiled with
 * `dryEnv` and separate services (`openDryConfig`), because its limits count during a run.
 */
import type { Backend, BackendRun, Prepared, ResponseReceiver } from "../../core/backend.ts";
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
  const { attributes, defaultTimeoutMs, parsesBody } = backend;
  return {
    attributes,
    defaultTimeoutMs,
    ...(parsesBody ? { parsesBody } : {}),
    prepare(exchange, needs) {
      const walk = exchange.state(ownWalk);
      const call = (receiver: ResponseReceiver): BackendRun => {
        if (walk) walk.called = exchange.request;
        receiver.head(200, new HeaderList());
        receiver.end();
        return NO_RUN;
      };
      const dry = (prepared: Prepared): Prepared => ("status" in prepared ? prepared : { ...prepared, call });
      const given = walk?.attributes;
      const { method, body } = exchange.request;
      const isLlm = attributes.type === "ai";
      if (!parsesBody) return { call };
      if (given?.mcp !== undefined) exchange.attributes.mcp = { ...given.mcp };
      if (given?.llm !== undefined && !isLlm) exchange.attributes.llm = { ...given.llm };
      const isBodyMissing = method === "POST" && body.kind === "none";
      if (given === undefined ? isBodyMissing : !isLlm) return { call };
      const recorded = given && { recorded: { llm: given.llm } };
      const prepared = backend.prepare(exchange, { ...needs, ...recorded });
      return prepared instanceof Promise ? prepared.then(dry) : dry(prepared);
    },
    describe: () => ({}),
  };
}
