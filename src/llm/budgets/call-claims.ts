/**
 * From an LLM call to what its budgets are charged with: the estimate before it, the counts and the price after it.
 * What has no price is refused where a hard budget counts dollars, because it would be free.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { LlmFacts } from "../../core/facts.ts";
import type { Outcome } from "../../core/policy.ts";
import type { Quote } from "../request/llm-call.ts";
import { LlmRequestFacts } from "../request/llm-facts.ts";
import { estimatedTokens, outputTokens, usedTokens } from "../usage/usage.ts";
import { accountOf, type Budget } from "./budget.ts";
import type { BudgetCharge, Claim } from "./budget-charge.ts";
import { toCounted } from "./money.ts";
import type { StreamProgress } from "./stream-progress.ts";

export interface WantedBudget {
  readonly budget: Budget;
  /** As it stands in the store. */
  readonly key: string | undefined;
}

const UNKNOWN: Quote = () => undefined;

export function claimsOf(
  wanted: readonly WantedBudget[],
  exchange: Exchange,
  unpriced: "refuse" | "allow",
  nowMs: number,
): Claim[] {
  const { llm } = exchange.facts;
  const quote = LlmRequestFacts.callOf(exchange)?.quote ?? UNKNOWN;
  const input = estimatedTokens(llm);
  const output = outputTokens(llm);
  return wanted.map(({ budget, key }) => {
    const account = accountOf(budget, key, key ?? "", nowMs);
    if (budget.unit === "tokens") return { account, estimate: input, output, priceOf: (tokens) => tokens };
    const cost = quote(input, 0);
    if (cost === undefined && budget.isHard && unpriced === "refuse" && !LlmRequestFacts.isFree(llm))
      throw refuseUnpriced(llm);
    const counted = (inputTokens: number, outTokens: number): number =>
      toCounted("cost", quote(inputTokens, outTokens) ?? 0);
    // At least one billionth: concurrent calls must not all pass on the last of it.
    const estimate = Math.max(1, counted(input, 0));
    return { account, estimate, output: counted(0, output), priceOf: (tokens) => counted(0, tokens) };
  });
}

export function settleCharge(charge: BudgetCharge, exchange: Exchange, outcome: Outcome): void {
  const { llm } = exchange.facts;
  const used = usedTokens(llm, outcome);
  const quote = LlmRequestFacts.callOf(exchange)?.quote ?? UNKNOWN;
  charge.settle(({ account: { budget }, estimate }) => {
    if (budget.unit === "tokens") {
      const recounted = estimatedTokens(llm);
      // The estimate of an upload is known when it went through.
      return used ?? (recounted === estimate ? undefined : recounted);
    }
    if (used === undefined) return undefined;
    const cost = llm?.cost ?? (used === 0 ? 0 : quote(llm?.inputTokens ?? used, llm?.outputTokens ?? 0));
    return toCounted("cost", cost ?? 0);
  });
}

/** A stream's words are charged while it runs. */
export function watchStream(progress: StreamProgress, charge: BudgetCharge, { response }: Exchange): void {
  if (response?.source !== "upstream" || response.status >= 300) return;
  if (response.headers.get("content-type")?.startsWith("text/event-stream") !== true) return;
  const observer = progress.watch((tokens) => charge.progressed(tokens));
  response.observers = [...(response.observers ?? []), observer];
}

function refuseUnpriced(llm: LlmFacts | undefined): GatewayError {
  const model = llm?.requestModel;
  return new GatewayError("unpriced_model", {
    ...(model === undefined
      ? {}
      : { message: `the model ${JSON.stringify(model)} has no price, and a budget in dollars applies` }),
  });
}
