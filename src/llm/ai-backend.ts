/**
 * Implements the `ai` backend, which forwards requests to LLM providers. `backend.ts` loads it on demand.
 */

import { createIdSource } from "../base/ids.ts";
import { peerInput } from "../base/peer-inputs.ts";
import type { Backend, BackendEnv, BackendRun, PreparedCall, ResponseReceiver } from "../core/backend.ts";
import type { Exchange } from "../core/exchange.ts";
import { type CallServices, ModelCall, requestedModel } from "./model-call.ts";
import { compileModels } from "./models/compile-models.ts";
import { createListedModels } from "./models/listed-models.ts";
import {
  type ConditionInput,
  conditionInput,
  createModelPolicies,
  createQuotes,
  loadPrices,
} from "./models/model-table.ts";
import { type AiConfig, DEFAULT_FAILOVER_ON } from "./models/schema.ts";
import { compileFailoverRules } from "./models/target.ts";
import { forwardUnread } from "./passthrough.ts";
import { type Reading, readCall, restoreRecordedCall } from "./prepare-call.ts";
import type { FailoverOptions } from "./provider-call.ts";
import { detectDialect } from "./request/dialect.ts";
import { llmCall } from "./request/llm-call.ts";
import { llmErrorReply } from "./request/llm-errors.ts";
import { createResponseCache } from "./response-cache.ts";
import { createLlmMetrics, Settlement } from "./settlement.ts";

const TREE = peerInput("client/llm-request-tree");

const RESPONSE_HEAD_TIMEOUT_MS = 300_000;

export function compileAi(config: AiConfig, env: BackendEnv): Backend {
  const table = compileModels(config, env);
  const metrics = createLlmMetrics(env.metrics);
  const prices = loadPrices(config, env);
  const quotes = createQuotes(table, prices);
  const cache = config.cache && createResponseCache(config.cache, JSON.stringify(config), env);
  const conditions = (exchange: Exchange): ConditionInput | undefined =>
    table.hasConditions ? conditionInput(exchange, prices) : undefined;
  const policies = createModelPolicies(table, requestedModel, conditions);
  const listed = createListedModels(table, { ...env, logger: env.logger.for("llm") });
  const reading: Reading = { table, policies, maxBodyBytes: config.maxBodyBytes, quotes, listed };
  const ids = createIdSource();
  const failover: FailoverOptions = {
    logger: env.logger.for("llm"),
    clock: env.clock,
    metrics,
    rules: compileFailoverRules(config.failoverOn ?? DEFAULT_FAILOVER_ON),
    tree: TREE.upTo(config.maxTreeBytes),
    unsupported: config.unsupported,
    newId: () => ids.hex(12),
    nowSeconds: () => Math.floor(env.clock.now() / 1000),
    prices,
  };
  const services: CallServices = { table, policies, cache, failover, conditions };

  function call(exchange: Exchange, receiver: ResponseReceiver): BackendRun {
    const llm = exchange.state(llmCall);
    if (llm !== undefined) return new ModelCall(services, exchange, receiver, llm).run();
    const { llm: sized } = exchange.attributes;
    const settlement = sized && new Settlement(failover, sized, detectDialect(exchange.request.path));
    return forwardUnread(table, exchange, receiver, settlement);
  }

  return {
    attributes: { name: config.name ?? env.name, type: "ai", protocol: "llm" },
    defaultTimeoutMs: RESPONSE_HEAD_TIMEOUT_MS,
    errorReply: llmErrorReply,
    parsesBody: true,
    prepare(exchange, needs) {
      const prepared: PreparedCall = {
        ...(policies ? { scopes: () => policies.inner(exchange) } : {}),
        call: (receiver) => call(exchange, receiver),
      };
      if (needs.recorded) {
        const { llm } = needs.recorded;
        if (llm !== undefined) restoreRecordedCall(exchange, llm, quotes);
        // Without the body, the model is unknown.
        return llm === undefined && exchange.request.method === "POST" ? { call: prepared.call } : prepared;
      }
      const reply = readCall(exchange, reading, needs);
      return reply instanceof Promise ? reply.then((late) => late ?? prepared) : (reply ?? prepared);
    },
    describe: () => ({
      models: table.names,
      ...(table.patterns.length === 0 ? {} : { modelPatterns: table.patterns }),
      ...(table.scopes.length === 0
        ? {}
        : { modelPolicies: table.scopes.map(({ of, effectivePolicy }) => ({ of, policies: effectivePolicy })) }),
      targets: table.targets.map(({ name, provider, display, health, quota, memory }) => ({
        name,
        provider: provider.name,
        target: display,
        ...health.describe(),
        ...(memory.rejectedFeatures.size === 0 ? {} : { lacks: [...memory.rejectedFeatures] }),
        ...quota?.describe(),
      })),
    }),
  };
}
