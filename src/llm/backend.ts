/**
 * `ai`: LLM providers as a backend. It reads the request, finds out what it asks for, and sends it on in the
 * client's own words where the provider speaks the same dialect, else in translation.
 */

import { createIdSource } from "../base/ids.ts";
import { finish, inTurns, SLICED_BYTES } from "../base/turns.ts";
import { type Backend, type BackendCall, type BackendEnv, type BackendRun, defineBackend } from "../core/backend.ts";
import type { Exchange } from "../core/exchange.ts";
import {
  applyPolicies,
  applyWebhooks,
  type PreparedRequest,
  requestedModel,
  withTree,
} from "./calls/apply-policies.ts";
import { DeferredRun } from "./calls/deferred-run.ts";
import { FailoverCall, sendJson } from "./calls/failover-call.ts";
import { forwardUnread } from "./calls/passthrough.ts";
import { prepareCall, type Reading, restoreRecordedCall } from "./calls/prepare-call.ts";
import {
  errorReply,
  LlmRejection,
  MISSING_MODEL,
  modelNotFound,
  noModelFits,
  recordRejection,
  UNREADABLE_STREAM,
} from "./calls/rejections.ts";
import { createResponseGuards } from "./calls/response-guards.ts";
import { Settlement } from "./calls/settlement.ts";
import { createGuardWatch } from "./guards/guarded-text.ts";
import { compileModels } from "./models/compile-models.ts";
import { compileFailoverRules, DEFAULT_FAILOVER_ON } from "./models/failover-rules.ts";
import { createModelPolicies, innerPolicies } from "./models/model-policies.ts";
import type { ConditionInput } from "./models/model-table.ts";
import { conditionInput, createQuotes, pricesOf } from "./models/quotes.ts";
import { type AiConfig, aiSchema, aiSchemaWith } from "./models/schema.ts";
import { dialectOf } from "./request/dialect.ts";
import { errorBody, errorHeaders, type LlmError } from "./request/llm-errors.ts";
import { LlmRequestFacts } from "./request/llm-facts.ts";
import { createResponseCache } from "./response-cache.ts";
import { createLlmMetrics } from "./usage/llm-metrics.ts";

const RESPONSE_HEAD_TIMEOUT_MS = 300_000;
const NOTHING_RUNS: BackendRun = { abort: () => undefined, resume: () => undefined };

export const ai = defineBackend({
  key: "ai",
  doc: "LLM providers: one, several in groups, or a list of models.",
  schema: aiSchema,
  schemaWith: aiSchemaWith,
  innerPolicies,
  section: { name: "llm", defaultPort: 4000 },
  compile: (config, env) => compileAi(config, env),
});

function compileAi(config: AiConfig, env: BackendEnv): Backend {
  const table = compileModels(config, env);
  const metrics = createLlmMetrics(env.metrics);
  const settling = {
    clock: env.clock,
    metrics,
    prices: pricesOf(config, env),
  };
  const quotes = createQuotes(table, settling.prices);
  const cache = config.cache && createResponseCache(config.cache, JSON.stringify(config), env);
  const asked = (exchange: Exchange): ConditionInput | undefined =>
    table.hasConditions ? conditionInput(exchange, settling.prices) : undefined;
  const policies = createModelPolicies(table, requestedModel, asked);
  const reading: Reading = { table, policies, maxBodyBytes: config.maxBodyBytes, quotes };
  const ids = createIdSource();
  const running = {
    logger: env.logger.for("llm"),
    clock: env.clock,
    metrics,
    rules: compileFailoverRules(config.failoverOn ?? DEFAULT_FAILOVER_ON),
    maxTreeBytes: config.maxTreeBytes,
    unsupported: config.unsupported,
    newId: () => ids.hex(12),
    nowSeconds: () => Math.floor(env.clock.now() / 1000),
  };
  return {
    facts: { name: config.name ?? env.name, type: "ai", protocol: "llm" },
    defaultTimeoutMs: RESPONSE_HEAD_TIMEOUT_MS,
    errorReply: errorReply,
    prepare: (exchange, needsModel) => prepareCall(exchange, reading, needsModel),
    recall: (exchange, recorded) => restoreRecordedCall(exchange, recorded, quotes),
    ...(policies ? { inner: (exchange: Exchange) => policies.inner(exchange) } : {}),
    call(exchange, call) {
      const llm = LlmRequestFacts.callOf(exchange);
      if (llm === undefined) {
        const { llm: sized } = exchange.facts;
        const dialect = dialectOf(exchange.request.path);
        return forwardUnread(table, exchange, call, running, sized && new Settlement(settling, sized, dialect));
      }
      const settlement = new Settlement(settling, exchange.facts.llm ?? {}, llm.dialect);
      const refuse = (error: LlmError): BackendRun => {
        settlement.unused(error.code ?? "");
        recordRejection(exchange, error);
        const { errorFormat } = llm.dialect;
        sendJson(call, error.status, errorBody(errorFormat, error), errorHeaders(errorFormat, error.status));
        return NOTHING_RUNS;
      };
      const start = (policed: PreparedRequest): BackendRun => {
        if (policed.model === undefined && llm.dialect.format !== "opaque" && !table.hasFixedModels)
          return refuse(MISSING_MODEL);
        const candidates = policies
          ? policies.chosen(llm, policed.model)
          : table.candidates(policed.model, asked(exchange));
        if (candidates === undefined) return refuse(modelNotFound(policed.model));
        if (candidates.length === 0 && table.hasConditions) return refuse(noModelFits(policed.model));
        const guarding = createResponseGuards(policed, llm.dialect, exchange);
        if (guarding === "unreadable") return refuse(UNREADABLE_STREAM);
        const ask = (to: BackendCall): BackendRun => {
          const { shown, from } = guarding(to);
          const run = new FailoverCall(running, exchange, shown, policed.llm, candidates, settlement);
          from(run);
          run.start();
          return run;
        };
        if (cache === undefined) return ask(call);
        const { model, llm: sent } = policed;
        return cache.run(exchange, call, { model, llm: sent, candidates, settlement, ask, through: guarding });
      };
      const refused = (error: unknown): BackendRun => {
        if (error instanceof LlmRejection) return refuse(error.error);
        throw error;
      };
      const policing = applyPolicies(llm, running, createGuardWatch(exchange, "request"));
      let isAborted = false;
      const isOver = (): boolean => isAborted;
      const later = (policed: Promise<PreparedRequest>): BackendRun => {
        const asked = policed.then(
          (judged) => () => start(judged),
          (error: unknown) => () => refused(error),
        );
        return new DeferredRun(call, asked, () => {
          isAborted = true;
          settlement.unused("aborted");
        });
      };
      if (llm.bytes.length > SLICED_BYTES)
        return later(
          inTurns(policing, isOver)
            .then((policed) => applyWebhooks(policed, running, isOver))
            .then((policed) => inTurns(withTree(policed, table.possible(policed.model), running), isOver)),
        );
      try {
        const policed = finish(policing);
        return policed.rules.requestWebhooks ? later(applyWebhooks(policed, running, isOver)) : start(policed);
      } catch (error) {
        return refused(error);
      }
    },
    describe: () => ({
      models: table.names,
      ...(table.scopes.length === 0
        ? {}
        : { modelPolicies: table.scopes.map(({ of, effectivePolicy }) => ({ of, policies: effectivePolicy })) }),
      targets: table.targets.map(({ name, provider, display, health, quota }) => ({
        name,
        provider: provider.name,
        target: display,
        ...health.describe(),
        ...quota?.describe(),
      })),
    }),
  };
}
