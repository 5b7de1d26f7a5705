/**
 * `budgets`: what LLM calls may cost per day, week or month, in US dollars or tokens, for all or per key. An estimate is
 * reserved in the store before a call and settled when its response has ended; a response is never cut.
 */
import { createHash } from "node:crypto";
import type { Expression } from "../../cel/expression.ts";
import { keyOf, mayBeSecret } from "../../cel/limit-key.ts";
import type { Exchange } from "../../core/exchange.ts";
import { type Charge, definePolicy, type Hooks, type Outcome } from "../../core/policy.ts";
import type { Budget } from "../../llm/budgets/budget.ts";
import { budgetBooks } from "../../llm/budgets/budget-books.ts";
import { BudgetCharge } from "../../llm/budgets/budget-charge.ts";
import { writeBudgetHeaders } from "../../llm/budgets/budget-readings.ts";
import { budgetView } from "../../llm/budgets/budget-views.ts";
import { claimsOf, settleCharge, watchStream } from "../../llm/budgets/call-claims.ts";
import { toCounted } from "../../llm/budgets/money.ts";
import { LlmRequestFacts } from "../../llm/request/llm-facts.ts";
import { type BudgetConfig, budgetsSchema } from "./schema.ts";

export const budgets = definePolicy({
  kind: "budgets",
  doc: "Limits what LLM calls cost per day, week or month, in US dollars or tokens, for all or per key; alerts, and answers 429 when a budget is used up.",
  scopes: ["gateway", "route", "model"],
  schema: budgetsSchema,

  compile(config, env): Hooks {
    const books = budgetBooks(env);
    const rules = config.limits.map((limit) => ({
      budget: budgetOf(limit),
      key: limit.key === undefined ? undefined : env.cel(limit.key),
    }));
    const readsModel = rules.some(({ key }) => key?.attributes.has("llm") === true);
    const charges = new WeakMap<Exchange, BudgetCharge>();
    const { failureMode, webhook } = config;
    const settings = { books, failureMode, webhook, nowMs: () => env.clock.now() };
    for (const { budget } of rules)
      env.keep(
        `budget view ${env.owner} ${budget.name}`,
        { budget, owner: env.owner },
        () =>
          env.limits.registerBudgets(async (key) => [await budgetView(budget, env.owner, books.store, env.clock, key)]),
        (unregister) => unregister(),
      );

    function llmRequest(exchange: Exchange): Charge {
      if (readsModel) LlmRequestFacts.requireOneModel(exchange.facts.llm);
      const nowMs = env.clock.now();
      const wanted = rules.map(({ budget, key }) => ({ budget, key: key && storedKey(key, exchange) }));
      const charge = new BudgetCharge(settings, claimsOf(wanted, exchange, config.unpriced, nowMs), exchange);
      charges.set(exchange, charge);
      return charge;
    }

    function settle(exchange: Exchange, outcome: Outcome): undefined {
      const charge = charges.get(exchange);
      if (charge !== undefined) settleCharge(charge, exchange, outcome);
    }

    function response(exchange: Exchange): undefined {
      const charge = charges.get(exchange);
      if (charge !== undefined) watchStream(books.progress, charge, exchange);
      writeBudgetHeaders(exchange);
    }

    return { llmRequest, settle, response, sight: { tokens: true, model: readsModel } };
  },
});

function budgetOf(config: BudgetConfig): Budget {
  const unit = config.tokens === undefined ? "cost" : "tokens";
  return {
    name: config.name,
    unit,
    limit: toCounted(unit, config.tokens ?? config.cost ?? 0),
    per: config.per,
    isHard: config.hard,
    reservesOutput: config.reserveOutput,
    alertAt: [...config.alertAt].sort((one, other) => one - other),
  };
}

/** What may be a credential does not get into the store. */
function storedKey(expression: Expression, { attributes }: Exchange): string | undefined {
  const key = keyOf(expression, attributes);
  if (key === undefined || !mayBeSecret(expression)) return key;
  return `#${createHash("sha256").update(key).digest("base64url")}`;
}
