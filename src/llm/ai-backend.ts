/**
 * Implements the `ai` backend, which forwards requests to LLM providers. `backend.ts` loads it on demand.
 */

import { createIdSource } from "../base/ids.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { finish, runInSlices, SLICED_BYTES } from "../base/sliced-work.ts";
import type { Backend, BackendEnv, BackendRun, PreparedCall, ResponseReceiver } from "../core/backend.ts";
import { DeferredRun } from "../core/deferred-run.ts";
import type { Exchange } from "../core/exchange.ts";
import { applyPolicies, applyWebhooks, type PreparedRequest, requestedModel, withTree } from "./apply-policies.ts";
import { compileModels } from "./models/compile-models.ts";
import { createListedModels } from "./models/listed-models.ts";
import {
  type Candidate,
  type ConditionInput,
  conditionInput,
  createModelPolicies,
  createQuotes,
  loadPrices,
  type ModelPolicies,
  type ModelTable,
} from "./models/model-table.ts";
import { type AiConfig, DEFAULT_FAILOVER_ON } from "./models/schema.ts";
import { compileFailoverRules } from "./models/target.ts";
import { forwardUnread } from "./passthrough.ts";
import { type Reading, readCall, restoreRecordedCall } from "./prepare-call.ts";
import type { FailoverOptions } from "./provider-call.ts";
import { ProviderTargets, sendJson } from "./provider-targets.ts";
import { detectDialect } from "./request/dialect.ts";
import { type LlmCall, llmCall } from "./request/llm-call.ts";
import {
  errorBody,
  errorHeaders,
  type LlmError,
  LlmRejection,
  llmErrorReply,
  MISSING_MODEL,
  modelNotFound,
  noModelFits,
  recordRejection,
  UNREADABLE_STREAM,
} from "./request/llm-errors.ts";
import { createResponseCache, type ResponseCache } from "./response-cache.ts";
import { createResponseGuards, type ResponseGuards } from "./response-guards.ts";
import { createLlmMetrics, Settlement, type SettlementOptions } from "./settlement.ts";

const TREE = peerInput("client/llm-request-tree");

const RESPONSE_HEAD_TIMEOUT_MS = 300_000;
const FINISHED: BackendRun = { abort: () => undefined, resume: () => undefined };

export function compileAi(config: AiConfig, env: BackendEnv): Backend {
  const table = compileModels(config, env);
  const metrics = createLlmMetrics(env.metrics);
  const settling: SettlementOptions = { clock: env.clock, metrics, prices: loadPrices(config, env) };
  const quotes = createQuotes(table, settling.prices);
  const cache = config.cache && createResponseCache(config.cache, JSON.stringify(config), env);
  const conditions = (exchange: Exchange): ConditionInput | undefined =>
    table.hasConditions ? conditionInput(exchange, settling.prices) : undefined;
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
    prices: settling.prices,
  };
  const services: CallServices = { table, policies, cache, settling, failover, conditions };

  function call(exchange: Exchange, receiver: ResponseReceiver): BackendRun {
    const llm = exchange.state(llmCall);
    if (llm !== undefined) return new ModelCall(services, exchange, receiver, llm).run();
    const { llm: sized } = exchange.attributes;
    const settlement = sized && new Settlement(settling, sized, detectDialect(exchange.request.path));
    return forwardUnread(table, exchange, receiver, failover, settlement);
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

interface CallServices {
  readonly table: ModelTable;
  readonly policies: ModelPolicies | undefined;
  readonly cache: ResponseCache | undefined;
  readonly settling: SettlementOptions;
  readonly failover: FailoverOptions;
  conditions(exchange: Exchange): ConditionInput | undefined;
}

class ModelCall {
  readonly #services: CallServices;
  readonly #exchange: Exchange;
  readonly #receiver: ResponseReceiver;
  readonly #llm: LlmCall;
  readonly #settlement: Settlement;
  #isAborted = false;

  constructor(services: CallServices, exchange: Exchange, receiver: ResponseReceiver, llm: LlmCall) {
    this.#services = services;
    this.#exchange = exchange;
    this.#receiver = receiver;
    this.#llm = llm;
    this.#settlement = new Settlement(services.settling, exchange.attributes.llm ?? {}, llm.dialect);
  }

  run(): BackendRun {
    const { failover, table } = this.#services;
    const isAborted = (): boolean => this.#isAborted;
    const applying = applyPolicies(this.#llm, failover, this.#exchange);
    if (this.#llm.bytes.length > SLICED_BYTES)
      return this.#startLater(
        runInSlices(applying, isAborted)
          .then((prepared) => applyWebhooks(prepared, failover, isAborted))
          .then((prepared) => runInSlices(withTree(prepared, table.possible(prepared.model), failover), isAborted)),
      );
    try {
      const prepared = finish(applying);
      if (prepared.rules.requestWebhooks) return this.#startLater(applyWebhooks(prepared, failover, isAborted));
      return this.#start(prepared);
    } catch (error) {
      return this.#rejectWith(error);
    }
  }

  #startLater(preparing: Promise<PreparedRequest>): BackendRun {
    const ready = preparing.then(
      (prepared) => () => this.#start(prepared),
      (error: unknown) => () => this.#rejectWith(error),
    );
    return new DeferredRun(this.#receiver, ready, () => {
      this.#isAborted = true;
      this.#settlement.unused("aborted");
    });
  }

  #start(prepared: PreparedRequest): BackendRun {
    const { table, cache, policies, conditions } = this.#services;
    const { dialect } = this.#llm;
    const { model, llm } = prepared;
    if (model === undefined && dialect.format !== "opaque" && !table.hasFixedModels) return this.#reject(MISSING_MODEL);
    const candidates = policies
      ? policies.chosen(this.#exchange, model)
      : table.candidates(model, conditions(this.#exchange));
    if (candidates === undefined) return this.#reject(modelNotFound(model));
    if (candidates.length === 0 && table.hasConditions) return this.#reject(noModelFits(model));
    const guards = createResponseGuards(prepared, dialect, this.#exchange);
    if (guards === "unreadable") return this.#reject(UNREADABLE_STREAM);
    const callProviders = (receiver: ResponseReceiver): BackendRun =>
      this.#callProviders(receiver, llm, candidates, guards);
    if (cache === undefined) return callProviders(this.#receiver);
    return cache.run(this.#exchange, this.#receiver, {
      model,
      llm,
      candidates,
      settlement: this.#settlement,
      callProviders,
      guards,
    });
  }

  #callProviders(
    receiver: ResponseReceiver,
    llm: LlmCall,
    candidates: readonly Candidate[],
    guards: ResponseGuards,
  ): BackendRun {
    const guarded = guards(receiver);
    const { failover } = this.#services;
    const targets = new ProviderTargets(failover, this.#exchange, guarded.receiver, llm, candidates, this.#settlement);
    guarded.setUpstream(targets);
    targets.callNext();
    return targets;
  }

  #rejectWith(error: unknown): BackendRun {
    if (error instanceof LlmRejection) return this.#reject(error.error);
    throw error;
  }

  #reject(error: LlmError): BackendRun {
    this.#settlement.unused(error.code ?? "");
    recordRejection(this.#exchange, error);
    const { errorFormat } = this.#llm.dialect;
    sendJson(this.#receiver, error.status, errorBody(errorFormat, error), errorHeaders(errorFormat, error.status));
    return FINISHED;
  }
}
