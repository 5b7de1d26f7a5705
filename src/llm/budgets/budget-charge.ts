/**
 * What one call takes from its budgets: an estimate is reserved in the store before the call, what a stream writes is added
 * while it runs, and at its end the real amount takes their place. If one budget refuses, nothing stays taken from
 * the others. The call belongs to the period in which it was admitted.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Charge } from "../../core/policy.ts";
import type { Account } from "./budget.ts";
import type { Webhook } from "./budget-alerts.ts";
import type { BudgetBooks } from "./budget-books.ts";
import { budgetExceeded, noteReading, readingOf } from "./budget-readings.ts";

/** Amounts as counted in the store. */
export interface Claim {
  readonly account: Account;
  /** Of the question: reserved before the call. At least 1. */
  readonly estimate: number;
  /** The most that the answer may cost, where the budget reserves it and the request says it; else 0. */
  readonly output: number;
  /** What so many tokens of an answer cost. */
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
  /** What stands in the store for each claim. */
  readonly #taken: number[];
  /** What the answer has cost so far, by claim. */
  readonly #written: number[];
  #isOver = false;

  constructor(settings: ChargeSettings, claims: readonly Claim[], exchange: Exchange) {
    this.#settings = settings;
    this.#claims = claims;
    this.#exchange = exchange;
    this.#taken = claims.map(() => 0);
    this.#written = claims.map(() => 0);
  }

  /** Nothing is counted in this process alone. */
  take(): undefined {}

  async confirm(): Promise<void> {
    const refusals = await Promise.all(this.#claims.map((claim, i) => this.#reserve(claim, i)));
    const refusal = refusals.find((one) => one !== undefined);
    // The client left meanwhile, or one of the budgets has nothing left.
    if (this.#isOver || refusal !== undefined) this.#release();
    if (refusal !== undefined) throw refusal;
  }

  giveBack(): undefined {
    this.#isOver = true;
    this.#release();
  }

  /** A stream has written so many more tokens. */
  progressed(tokens: number): void {
    if (this.#isOver) return;
    for (const [i, claim] of this.#claims.entries()) {
      const before = Math.max(0, (this.#written[i] as number) - claim.output);
      const written = (this.#written[i] as number) + claim.priceOf(tokens);
      this.#written[i] = written;
      // What was reserved for the answer is used up first.
      const more = Math.max(0, written - claim.output) - before;
      if (more > 0) this.#add(i, more);
    }
  }

  /** The call ended. `used` says what it cost by a claim's account; undefined: nothing is known, what was taken stays. */
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
