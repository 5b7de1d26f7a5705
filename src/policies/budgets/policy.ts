/**
 * `budgets`: limits the cost of LLM calls per day, week, or month, in US dollars or tokens, in total or per key. The
 * policy reserves an estimate in the store before a call and settles it when the response ends.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import type { Expression } from "../../cel/expression.ts";
import { keyOf, mayBeSecret } from "../../cel/limit-key.ts";
import { protectionBy } from "../../core/cel-attributes.ts";
import type { Exchange } from "../../core/exchange.ts";
import { type Charge, definePolicy, type Hooks } from "../../core/policy.ts";
import { celSource, exactlyOneOf, headerName, headerValue, serverUrl } from "../../core/schema.ts";
import {
  accountsOf,
  type Budget,
  budgetView,
  MAX_BUDGET_TOKENS,
  MAX_COST,
  toStoredAmount,
} from "../../llm/budgets/budget.ts";
import { createChargeHooks, createClaims } from "../../llm/budgets/budget-charge.ts";
import { budgetBooks } from "../../llm/budgets/ledger.ts";
import { LlmRequestAttributes } from "../../llm/request/llm-call.ts";

/** The number is limited, because a call updates the counter of each budget in the store. */
const MAX_BUDGETS = 16;
const MAX_ALERTS = 10;
const DEFAULT_ALERTS = [80, 100];

export const budgetName = z
  .string()
  .regex(/^[A-Za-z0-9._-]{1,64}$/, "expected up to 64 letters, digits, `.`, `_` or `-`");

const budget = exactlyOneOf(
  z.strictObject({
    name: budgetName.describe(
      "The name in headers, metrics and the store. Budgets with the same name share their spending; those of documents only within their namespace.",
    ),
    cost: z
      .number()
      .min(0.000001)
      .max(MAX_COST)
      .optional()
      .describe("US dollars per period. Exactly one of `cost` and `tokens`."),
    tokens: z
      .int()
      .min(1)
      .max(MAX_BUDGET_TOKENS)
      .optional()
      .describe("Tokens per period: input and output, including cached tokens."),
    per: z.enum(["day", "week", "month"]).describe("The period, in UTC; weeks begin on Monday."),
    key: celSource()
      .optional()
      .describe("CEL: each distinct value has its own budget, for example `apiKey.user_id` or `jwt.sub`."),
    hard: z
      .boolean()
      .default(true)
      .describe("Whether calls are rejected when the budget is exhausted; `false` only sends alerts. Default: true."),
    alertAt: z
      .array(z.number().min(1).max(1000))
      .max(MAX_ALERTS)
      .default(DEFAULT_ALERTS)
      .describe("Percentages at which an alert is sent. Default: [80, 100]."),
    reserveOutput: z
      .boolean()
      .default(false)
      .describe(
        "Also reserves the maximum output of the request, and rejects requests that do not fit. Default: false.",
      ),
  }),
  ["cost", "tokens"],
);

export const budgetsSchema = z.strictObject({
  limits: z
    .array(budget)
    .min(1)
    .max(MAX_BUDGETS)
    .refine((list) => new Set(list.map(({ name }) => name)).size === list.length, "each budget needs a unique name")
    .describe("The budgets. A call must pass all of them."),
  webhook: z
    .strictObject({
      url: serverUrl().describe("The URL that receives alerts as POST requests."),
      headers: z
        .record(headerName(), headerValue().meta({ secret: true }))
        .default({})
        .describe("Headers of these requests, for example a token."),
    })
    .optional()
    .describe("Receives the alerts."),
  unpriced: z
    .enum(["refuse", "allow"])
    .default("refuse")
    .describe(
      "Whether hard budgets reject requests whose cost is unknown (batches, videos, WebSockets, and for dollars models without a price) or treat them as free. Default: refuse.",
    ),
  failureMode: z
    .enum(["closed", "open"])
    .default("closed")
    .describe("What happens while the store is unavailable: `closed` returns 503, `open` lets calls pass."),
});

export type BudgetsConfig = z.output<typeof budgetsSchema>;
export type BudgetConfig = BudgetsConfig["limits"][number];

export const budgets = definePolicy({
  kind: "budgets",
  doc: "Limits the cost of LLM calls per day, week or month, in US dollars or tokens, in total or per key; sends alerts, and returns 429 when a budget is exhausted.",
  scopes: ["gateway", "route", "model"],
  protection: ({ limits }) => protectionBy(limits.map(({ key }) => key)),
  sharedState: () => ({ what: "budgets" }),
  schema: budgetsSchema,
  entries: [["limits"]],

  compile(config, env): Hooks {
    const books = budgetBooks(env);
    const accounts = accountsOf(env.store);
    const rules = config.limits.map((limit) => ({
      budget: toBudget(limit),
      key: limit.key === undefined ? undefined : env.cel(limit.key),
    }));
    const readsModel = rules.some(({ key }) => key?.attributes.has("llm") === true);
    const { failureMode, webhook } = config;
    const { charge, settle, response } = createChargeHooks({
      books,
      failureMode,
      webhook: webhook && { ...webhook, fetch: env.fetch },
      nowMs: () => env.clock.now(),
    });
    for (const { budget } of rules)
      env.acquire(
        `budget view ${env.scopeName} ${budget.name}`,
        { budget, owner: env.scopeName, failureMode },
        () =>
          env.limits.registerBudgets(
            async (key) => [await budgetView(budget, env.scopeName, accounts, env.clock, key)],
            { requiresStore: budget.isHard && failureMode === "closed" },
          ),
        (unregister) => unregister(),
      );

    function call(exchange: Exchange): Charge {
      if (readsModel) LlmRequestAttributes.requireOneModel(exchange.attributes.llm);
      const nowMs = env.clock.now();
      const wanted = rules.map(({ budget, key }) => ({ accounts, budget, key: key && storedKey(key, exchange) }));
      return charge(exchange, createClaims(wanted, exchange, config.unpriced, nowMs));
    }

    return { admit: { call }, settle, response, sight: { tokens: true, model: readsModel } };
  },
});

function toBudget(config: BudgetConfig): Budget {
  const unit = config.tokens === undefined ? "cost" : "tokens";
  return {
    name: config.name,
    unit,
    limit: toStoredAmount(unit, config.tokens ?? config.cost ?? 0),
    per: config.per,
    isHard: config.hard,
    reservesOutput: config.reserveOutput,
    alertAt: [...config.alertAt].sort((a, b) => a - b),
  };
}

/** Hashes keys that may be credentials, so that the store contains no credentials. */
function storedKey(expression: Expression, { celAttributes }: Exchange): string | undefined {
  const key = keyOf(expression, celAttributes);
  if (key === undefined || !mayBeSecret(expression)) return key;
  return `#${createHash("sha256").update(key).digest("base64url")}`;
}
