/**
 * The charge of one LLM call to its budgets. An estimate is reserved in the store before the call, streamed output is
 * added while it runs, and the actual amount replaces both at the end. If one budget rejects the call, reservations in
 * the others are released. The call belongs to the period in which it was admitted.
 *
 * A call without a price is rejected if a hard budget counts dollars, because it would be free. Response headers show
 * the budget with the smallest remaining share, or the one that rejected the call.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { LlmFacts } from "../../core/facts.ts";
import type { Charge, Outcome } from "../../core/policy.ts";
import type { Quote } from "../request/llm-call.ts";
import { LlmRequestFacts } from "../request/llm-facts.ts";
import { estimatedTokens, outputTokens, usedTokens } from "../usage/usage.ts";
import { type Account, accountOf, type Budget, secondsLeft, shownAmount, shownUnit, toCounted } from "./budget.ts";
import type { Webhook } from "./budget-alerts.ts";
import type { BudgetBooks } from "./ledger.ts";
import type { StreamProgress } from "./stream-progress.ts";

/** Amounts are in integer units, as stored. */
export interface Claim {
  readonly account: Account;
  /** The estimated input, reserved before the call. At least 1. */
  readonly estimate: number;
  /** The maximum output, if the budget reserves it and the request limits it; otherwise 0. */
  readonly output: number;
  /** The price of this many output tokens. */
  priceOf(tokens: number): number;
}

export interface ChargeSettings {
  readonly books: BudgetBooks;
  readonly failureMode: "closed" | "open";
  readonly webhook: Webhook | undefined;
  nowMs(): number;
}

export class BudgetCharge implements Charge {
  readonly #settings: ChargeSettings;
  readonly #claims: readonly Claim[];
  readonly #exchange: Exchange;
  /** The amount in the store for each claim. */
  readonly #taken: number[];
  /** The price of the output so far, by claim. */
  readonly #written: number[];
  #isOver = false;

  constructor(settings: ChargeSettings, claims: readonly Claim[], exchange: Exchange) {
    this.#settings = settings;
    this.#claims = claims;
    this.#exchange = exchange;
    this.#taken = claims.map(() => 0);
    this.#written = claims.map(() => 0);
  }

  /** Budgets are counted in the store only. */
  take(): undefined {}

  async confirm(): Promise<void> {
    const refusals = await Promise.all(this.#claims.map((claim, i) => this.#reserve(claim, i)));
    const refusal = refusals.find((one) => one !== undefined);
    // Releases reservations if the client disconnected or a budget rejected the call.
    if (this.#isOver || refusal !== undefined) this.#release();
    if (refusal !== undefined) throw refusal;
  }

  giveBack(): undefined {
    this.#isOver = true;
    this.#release();
  }

  /** A stream has produced this many more tokens. */
  progressed(tokens: number): void {
    if (this.#isOver) return;
    for (const [i, claim] of this.#claims.entries()) {
      const before = Math.max(0, (this.#written[i] as number) - claim.output);
      const written = (this.#written[i] as number) + claim.priceOf(tokens);
      this.#written[i] = written;
      // Uses the reservation for the output first.
      const more = Math.max(0, written - claim.output) - before;
      if (more > 0) this.#add(i, more);
    }
  }

  /** The call ended. `used` returns its price for a claim; if undefined, the charged amount stays. */
  settle(used: (claim: Claim) => number | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const [i, claim] of this.#claims.entries()) {
      const amount = used(claim) ?? (this.#taken[i] as number);
      this.#add(i, amount - (this.#taken[i] as number));
      this.#settings.books.spent(claim.account, amount);
    }
  }

  async #reserve({ account, estimate, output }: Claim, index: number): Promise<GatewayError | undefined> {
    const { books, nowMs } = this.#settings;
    const { budget } = account;
    const amount = estimate + (budget.reservesOutput ? output : 0);
    const ceiling = !budget.isHard
      ? Number.MAX_SAFE_INTEGER
      : // Without a reservation of the output, a call passes while anything at all is left.
        budget.reservesOutput
        ? budget.limit
        : budget.limit - 1 + amount;
    try {
      const { isAdded, total } = await books.ledger.reserve(account, amount, ceiling);
      const reading = readingOf(account, total, nowMs());
      if (isAdded) {
        this.#taken[index] = amount;
        noteReading(this.#exchange, reading);
        return undefined;
      }
      books.refused(account);
      return budgetExceeded(this.#exchange, account, reading);
    } catch (error) {
      if (this.#settings.failureMode === "open" || !budget.isHard) return undefined;
      return new GatewayError("budget_unavailable", { cause: error, detail: (error as Error).message });
    }
  }

  #release(): void {
    for (const [i, taken] of this.#taken.entries()) if (taken !== 0) this.#add(i, -taken, false);
  }

  #add(index: number, amount: number, mayAlert = true): void {
    const { books, webhook } = this.#settings;
    const { account } = this.#claims[index] as Claim;
    this.#taken[index] = (this.#taken[index] as number) + amount;
    void books.ledger.add(account, amount).then((total) => {
      if (total !== undefined && mayAlert) books.alerts.check(account, total, webhook);
    });
  }
}

export interface WantedBudget {
  readonly budget: Budget;
  /** As stored. */
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
      throw unpricedModel(llm);
    const counted = (inputTokens: number, outTokens: number): number =>
      toCounted("cost", quote(inputTokens, outTokens) ?? 0);
    // At least one billionth, so that concurrent calls do not all pass on the last unit.
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
      // The size of an upload is known only after it was sent.
      return used ?? (recounted === estimate ? undefined : recounted);
    }
    if (used === undefined) return undefined;
    const cost = llm?.cost ?? (used === 0 ? 0 : quote(llm?.inputTokens ?? used, llm?.outputTokens ?? 0));
    return toCounted("cost", cost ?? 0);
  });
}

/** Charges a stream while it runs. */
export function watchStream(progress: StreamProgress, charge: BudgetCharge, { response }: Exchange): void {
  if (response?.source !== "upstream" || response.status >= 300) return;
  if (response.headers.get("content-type")?.startsWith("text/event-stream") !== true) return;
  const observer = progress.watch((tokens) => charge.progressed(tokens));
  response.observers = [...(response.observers ?? []), observer];
}

function unpricedModel(llm: LlmFacts | undefined): GatewayError {
  const model = llm?.requestModel;
  return new GatewayError("unpriced_model", {
    ...(model === undefined
      ? {}
      : { message: `the model ${JSON.stringify(model)} has no price, and a budget in dollars applies` }),
  });
}

export interface BudgetReading {
  readonly share: number;
  readonly headers: Readonly<Record<string, string>>;
}

const NAMES = ["x-budget-name", "x-budget-unit", "x-budget-limit", "x-budget-remaining", "x-budget-reset"] as const;

/** The budget readings of a request, across all scopes. */
const readings = new WeakMap<Exchange, BudgetReading[]>();

export function readingOf({ budget, period }: Account, total: number, nowMs: number): BudgetReading {
  const remaining = Math.max(0, budget.limit - total);
  return {
    share: remaining / budget.limit,
    headers: {
      "x-budget-name": budget.name,
      "x-budget-unit": shownUnit(budget.unit),
      "x-budget-limit": shownAmount(budget.unit, budget.limit),
      "x-budget-remaining": shownAmount(budget.unit, remaining),
      "x-budget-reset": String(secondsLeft(period, nowMs)),
    },
  };
}

export function noteReading(exchange: Exchange, reading: BudgetReading): void {
  const known = readings.get(exchange);
  if (known === undefined) readings.set(exchange, [reading]);
  else known.push(reading);
}

export function budgetExceeded(exchange: Exchange, account: Account, reading: BudgetReading): GatewayError {
  readings.set(exchange, [reading]);
  const { budget, period, owner } = account;
  const limit = `${shownAmount(budget.unit, budget.limit)} ${shownUnit(budget.unit)} per ${budget.per}`;
  return new GatewayError("budget_exceeded", {
    message: `the budget "${budget.name}" of ${limit} is exhausted; it is restored at ${new Date(period.endMs).toISOString()}`,
    detail: `the budget ${budget.name} (${limit}) is exhausted for ${owner}`,
    headers: { ...reading.headers, "retry-after": reading.headers["x-budget-reset"] as string },
  });
}

export function writeBudgetHeaders(exchange: Exchange): void {
  const { response } = exchange;
  if (response === undefined) return;
  const { headers } = response;
  const known = readings.get(exchange);
  if (known === undefined) {
    if (response.source === "upstream") for (const name of NAMES) headers.delete(name);
    return;
  }
  const smallest = known.reduce((least, one) => (one.share < least.share ? one : least));
  for (const [name, value] of Object.entries(smallest.headers)) headers.set(name, value);
}
