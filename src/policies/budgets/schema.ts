/**
 * The configuration of `budgets`. Refused: both or neither of `cost` and `tokens`, zero, names that could not stand in a
 * header or a path, two budgets of one name.
 */
import { z } from "zod";
import { celSource, exactlyOneOf, headerName, headerValue, httpUrl } from "../../core/schema.ts";
import { MAX_BUDGET_TOKENS, MAX_COST } from "../../llm/budgets/money.ts";

/** Each is a counter in the store that every call changes twice. */
const MAX_BUDGETS = 16;
const MAX_ALERTS = 10;
const DEFAULT_ALERTS = [80, 100];

export const budgetName = z
  .string()
  .regex(/^[A-Za-z0-9._-]{1,64}$/, "expected up to 64 letters, digits, `.`, `_` or `-`");

const budget = exactlyOneOf(
  z.strictObject({
    name: budgetName.describe("Its name in headers, metrics and the store. The same name shares what was spent."),
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
      .describe("Tokens per period: input and output, cached ones included."),
    per: z.enum(["day", "week", "month"]).describe("The period, in UTC; weeks begin on Monday."),
    key: celSource()
      .optional()
      .describe("CEL: each distinct value has a budget of its own, for example `apiKey.user_id` or `jwt.sub`."),
    hard: z
      .boolean()
      .default(true)
      .describe("Whether calls are rejected when it is used up; `false` only alerts. Default: true."),
    alertAt: z
      .array(z.number().min(1).max(1000))
      .max(MAX_ALERTS)
      .default(DEFAULT_ALERTS)
      .describe("Percentages at which an alert is sent. Default: [80, 100]."),
    reserveOutput: z
      .boolean()
      .default(false)
      .describe("Reserves the request's own output maximum too, and admits only what fits. Default: false."),
  }),
  ["cost", "tokens"],
);

export const budgetsSchema = z.strictObject({
  limits: z
    .array(budget)
    .min(1)
    .max(MAX_BUDGETS)
    .refine((list) => new Set(list.map(({ name }) => name)).size === list.length, "each budget needs a name of its own")
    .describe("The budgets. A call must pass all of them."),
  webhook: z
    .strictObject({
      url: httpUrl().describe("Where alerts are sent to, as a POST."),
      headers: z
        .record(headerName(), headerValue().meta({ secret: true }))
        .default({})
        .describe("Headers of that request, for example a token."),
    })
    .optional()
    .describe("Gets each alert."),
  unpriced: z
    .enum(["refuse", "allow"])
    .default("refuse")
    .describe("Calls of models without a price, where a budget is in dollars: rejected, or free. Default: refuse."),
  failureMode: z
    .enum(["closed", "open"])
    .default("closed")
    .describe("What happens while the store is unavailable: `closed` answers 503, `open` lets calls pass."),
});

export type BudgetsConfig = z.output<typeof budgetsSchema>;
export type BudgetConfig = BudgetsConfig["limits"][number];
