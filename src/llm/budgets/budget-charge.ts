/**
 * Charges one LLM call to its budgets. An estimate is reserved in the store before the call and corrected at the end.
 */
import { GatewayError } from "../../core/errors.ts";
import type { BudgetReading, Exchange } from "../../core/exchange.ts";
import type { Charge, Hooks, Outcome } from "../../core/policy.ts";
import { LlmRequestAttributes, llmCall, type Quote, requireKnownCost, unpricedMessage } from "../request/llm-call.ts";
import { estimatedTokens, outputTokens, usedTokens } from "../usage/usage.ts";
import {
  type Account,
  type AccountSpace,
  accountFor,
  type Budget,
  displayUnit,
  formatAmount,
  secondsLeft,
  toStoredAmount,
} from "./budget.ts";
import type { Webhook } from "./budget-alerts.ts";
import type { BudgetBooks } from "./ledger.ts";

/** All amounts are integers in the budget's stored unit. */
interface Claim {
  readonly account: Account;
  /** This amount is reserved for the input before the call. It is at least 1. */
  readonly estimate: number;
  /** Holds the amount for the request's maximum output. It is 0 if the maximum or its price is unknown. */
  readonly output: number;
  priceOf(tokens: number): number;
}

interface ChargeSettings {
  readonly books: BudgetBooks;
  readonly failureMode: "closed" | "open";
  readonly webhook: Webhook | undefined;
  nowMs(): number;
}

/** Checks for alerts of a budget in another scope that has the same account. */
interface Follower {
  readonly account: Account;
  readonly webhook: Webhook | undefined;
}

/**
 * Budgets of several scopes can share an account. The outermost scope charges it. The others only check their limits,
 * and reserve what exceeds its reservation.
 */
class BudgetCharge implements Charge {
  readonly #settings: ChargeSettings;
  readonly #claims: readonly Claim[];
  readonly #exchange: Exchange;
  readonly #taken: number[];
  readonly #written: number[];
  /** The charge of another scope that charges the account of the claim at the same index. */
  readonly #charging: readonly (BudgetCharge | undefined)[] | undefined;
  #followers: Follower[] | undefined = undefined;
  #isOver = false;

  constructor(settings: ChargeSettings, claims: readonly Claim[], exchange: Exchange) {
    this.#settings = settings;
    this.#claims = claims;
    this.#exchange = exchange;
    this.#taken = claims.map(() => 0);
    this.#written = claims.map(() => 0);
    const before = exchange.limits.budgetCharges?.filter((charge) => charge instanceof BudgetCharge);
    this.#charging =
      before && claims.map(({ account }) => before.find((one) => one.#follow(account, settings.webhook)));
  }

  #follow(account: Account, webhook: Webhook | undefined): boolean {
    const index = this.#indexOf(account);
    if (this.#isOver || index < 0 || this.#charging?.[index] !== undefined) return false;
    this.#followers ??= [];
    this.#followers.push({ account, webhook });
    return true;
  }

  #indexOf({ id }: Account): number {
    return this.#claims.findIndex(({ account }) => account.id === id);
  }

  isFor(settings: ChargeSettings): boolean {
    return this.#settings === settings;
  }

  /** Budgets have no local counters. */
  take(): undefined {}

  async confirm(): Promise<void> {
    const refusals = await Promise.all(this.#claims.map((claim, i) => this.#reserve(claim, i)));
    const refusal = refusals.find((one) => one !== undefined);
    if (this.#isOver || refusal !== undefined) this.#release();
    if (refusal !== undefined) throw refusal;
  }

  giveBack(): undefined {
    this.#isOver = true;
    this.#release();
  }

  /** `tokens` is the number of output tokens since the previous call. */
  progressed(tokens: number): void {
    if (this.#isOver) return;
    for (const [i, claim] of this.#claims.entries()) {
      if (this.#charging?.[i] !== undefined) continue;
      const before = Math.max(0, (this.#written[i] as number) - claim.output);
      const written = (this.#written[i] as number) + claim.priceOf(tokens);
      this.#written[i] = written;
      const more = Math.max(0, written - claim.output) - before;
      if (more <= 0) continue;
      this.#taken[i] = (this.#taken[i] as number) + more;
      this.#alert(i, this.#settings.books.ledger.take(claim.account, more));
    }
  }

  /** `used` returns the amount to charge to a claim. If it returns undefined, the amount charged so far stays. */
  settle(used: (claim: Claim) => number | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const [i, claim] of this.#claims.entries()) {
      if (this.#charging?.[i] !== undefined) {
        this.#releaseOne(i);
        continue;
      }
      const taken = this.#taken[i] as number;
      const amount = used(claim) ?? taken;
      this.#taken[i] = 0;
      this.#alert(i, this.#settings.books.ledger.settle(claim.account, taken, amount));
      this.#settings.books.spent(claim.account, amount);
      if (amount === 0) continue;
      this.#exchange.limits.spent ??= [];
      this.#exchange.limits.spent.push({ account: claim.account.id, amount });
    }
  }

  async #reserve({ account, estimate, output }: Claim, index: number): Promise<GatewayError | undefined> {
    const { books, nowMs } = this.#settings;
    const { budget } = account;
    const wanted = estimate + (budget.reservesOutput ? output : 0);
    const charging = this.#charging?.[index];
    const shared = charging === undefined ? 0 : (charging.#taken[charging.#indexOf(account)] as number);
    const amount = Math.max(0, wanted - shared);
    // If the output is not reserved, a call is admitted while the budget is not exhausted.
    const hardCeiling = budget.reservesOutput ? budget.limit : budget.limit - 1 + amount + shared;
    const ceiling = budget.isHard ? hardCeiling : Number.MAX_SAFE_INTEGER;
    try {
      const { isAdded, total } = await books.ledger.reserve(account, amount, ceiling);
      const reading = createReading(account, total, nowMs());
      if (isAdded) {
        this.#taken[index] = amount;
        this.#exchange.limits.budgetReadings ??= [];
        this.#exchange.limits.budgetReadings.push(reading);
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
    for (const i of this.#taken.keys()) this.#releaseOne(i);
  }

  #releaseOne(index: number): void {
    const taken = this.#taken[index] as number;
    if (taken === 0) return;
    this.#taken[index] = 0;
    void this.#settings.books.ledger.settle((this.#claims[index] as Claim).account, taken, 0);
  }

  #alert(index: number, changed: Promise<number | undefined>): void {
    const { books, webhook } = this.#settings;
    const { account } = this.#claims[index] as Claim;
    void changed.then((total) => {
      if (total === undefined) return;
      books.alerts.check(account, total, webhook);
      for (const other of this.#followers ?? [])
        if (other.account.id === account.id) books.alerts.check(other.account, total, other.webhook);
    });
  }
}

interface ChargeHooks extends Required<Pick<Hooks, "settle" | "response">> {
  charge(exchange: Exchange, claims: readonly Claim[]): BudgetCharge;
}

/** Returns the hooks of one policy. Each policy needs its own `settings`, because they identify its charges. */
export function createChargeHooks(settings: ChargeSettings): ChargeHooks {
  const isOwn = (charge: object): boolean => charge instanceof BudgetCharge && charge.isFor(settings);
  // Each attempt may add a charge.
  const chargeOf = ({ limits }: Exchange): BudgetCharge | undefined =>
    limits.budgetCharges?.findLast(isOwn) as BudgetCharge | undefined;
  return {
    charge(exchange, claims) {
      const charge = new BudgetCharge(settings, claims, exchange);
      exchange.limits.budgetCharges ??= [];
      exchange.limits.budgetCharges.push(charge);
      return charge;
    },
    settle(exchange, outcome) {
      const charge = chargeOf(exchange);
      if (charge !== undefined) settleCharge(charge, exchange, outcome);
    },
    response: {
      head(exchange) {
        const charge = chargeOf(exchange);
        if (charge !== undefined) watchStream(charge, settings, exchange);
        writeBudgetHeaders(exchange);
        return undefined;
      },
    },
  };
}

interface AppliedBudget {
  readonly accounts: AccountSpace;
  readonly budget: Budget;
  readonly key: string | undefined;
}

const UNKNOWN: Quote = () => undefined;

export function createClaims(
  wanted: readonly AppliedBudget[],
  exchange: Exchange,
  unpriced: "refuse" | "allow",
  nowMs: number,
): Claim[] {
  const { llm } = exchange.attributes;
  const call = exchange.state(llmCall);
  const quote = call?.quote ?? UNKNOWN;
  const input = estimatedTokens(llm);
  const output = outputTokens(llm);
  return wanted.map(({ accounts, budget, key }) => {
    const account = accountFor(accounts, budget, key, key ?? "", nowMs);
    if (budget.isHard && unpriced === "refuse") requireKnownCost(llm, "budgets");
    if (budget.unit === "tokens") return { account, estimate: input, output, priceOf: (tokens) => tokens };
    const cost = quote(input, 0);
    if (budget.isHard && unpriced === "refuse" && LlmRequestAttributes.costOf(llm) !== "free") {
      LlmRequestAttributes.requirePrice(llm);
      // The backend rejects a model that it does not know.
      if (cost === undefined && call?.isUnknownModel !== true) throw unpricedModel(llm?.requestModel);
    }
    const counted = (inputTokens: number, outTokens: number): number =>
      toStoredAmount("cost", quote(inputTokens, outTokens) ?? 0);
    // A minimum of 1 keeps concurrent calls from all passing on the last unit.
    const estimate = Math.max(1, counted(input, 0));
    return { account, estimate, output: counted(0, output), priceOf: (tokens) => counted(0, tokens) };
  });
}

function settleCharge(charge: BudgetCharge, exchange: Exchange, outcome: Outcome): void {
  const { llm } = exchange.attributes;
  const used = usedTokens(llm, outcome);
  charge.settle(({ account: { budget }, estimate }) => {
    if (budget.unit === "tokens") {
      const recounted = estimatedTokens(llm);
      // The size of an upload may be unknown until it has been sent.
      return used ?? (recounted === estimate ? undefined : recounted);
    }
    if (used === undefined) return undefined;
    return toStoredAmount("cost", llm?.cost ?? 0);
  });
}

function watchStream(charge: BudgetCharge, { books: { progress } }: ChargeSettings, { response }: Exchange): void {
  if (response?.source !== "upstream" || response.status >= 300) return;
  if (response.headers.get("content-type")?.startsWith("text/event-stream") !== true) return;
  const observer = progress.watch((tokens) => charge.progressed(tokens));
  response.observers = [...(response.observers ?? []), observer];
}

function unpricedModel(model: string | undefined): GatewayError {
  return new GatewayError("unpriced_model", model === undefined ? {} : { message: unpricedMessage(model) });
}

const NAMES = ["x-budget-name", "x-budget-unit", "x-budget-limit", "x-budget-remaining", "x-budget-reset"] as const;

function createReading({ budget, period }: Account, total: number, nowMs: number): BudgetReading {
  const remaining = Math.max(0, budget.limit - total);
  return {
    share: remaining / budget.limit,
    headers: {
      "x-budget-name": budget.name,
      "x-budget-unit": displayUnit(budget.unit),
      "x-budget-limit": formatAmount(budget.unit, budget.limit),
      "x-budget-remaining": formatAmount(budget.unit, remaining),
      "x-budget-reset": String(secondsLeft(period, nowMs)),
    },
  };
}

function budgetExceeded(exchange: Exchange, account: Account, reading: BudgetReading): GatewayError {
  exchange.limits.budgetReadings = [reading];
  const { budget, period, owner } = account;
  const limit = `${formatAmount(budget.unit, budget.limit)} ${displayUnit(budget.unit)} per ${budget.per}`;
  return new GatewayError("budget_exceeded", {
    message: `the budget "${budget.name}" of ${limit} is exhausted; it is restored at ${new Date(period.endMs).toISOString()}`,
    detail: `the budget ${budget.name} (${limit}) is exhausted for ${owner}`,
    headers: { ...reading.headers, "retry-after": reading.headers["x-budget-reset"] as string },
  });
}

function writeBudgetHeaders({ response, limits: { budgetReadings: known } }: Exchange): void {
  if (response === undefined) return;
  const { headers } = response;
  if (known === undefined) {
    if (response.source === "upstream") for (const name of NAMES) headers.delete(name);
    return;
  }
  const smallest = known.reduce((least, one) => (one.share < least.share ? one : least));
  for (const name of NAMES) headers.set(name, smallest.headers[name] as string);
}
