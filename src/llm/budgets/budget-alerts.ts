/**
 * Sends an alert when the spending of an account reaches a configured percentage of its budget. A marker in the store
 * prevents duplicate alerts.
 */

import { type Clock, wait } from "../../base/clock.ts";
import { type OwnedKey, ownedKey } from "../../base/owner.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { Logger } from "../../record/log/logger.ts";
import type { Counter, Family, Metrics } from "../../record/log/metrics.ts";
import { type Account, displayUnit, formatAmount, fromStoredAmount } from "./budget.ts";

export interface Webhook {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Reaches only the addresses that the webhook's own configuration may reach. */
  readonly fetch: Fetch;
}

interface AlertServices {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
}

const TIMEOUT_MS = 5_000;
const RESPONSE = peerInput("alert-service/response");
const PAUSES_MS = [1_000, 5_000];
/** Bounds the set of sent alerts. Clearing the set is safe because the store prevents duplicates. */
const MAX_REMEMBERED = 10_000;

export class BudgetAlerts {
  readonly #services: AlertServices;
  readonly #sent = new Set<OwnedKey>();
  readonly #count: Family<Counter>;

  constructor(services: AlertServices) {
    this.#services = services;
    const { metrics } = services;
    this.#count = metrics.counter("gateway_budget_alerts_total", "Alerts of budgets by percentage.", [
      "budget",
      "percent",
    ]);
  }

  check(account: Account, total: number, webhook: Webhook | undefined): void {
    const { budget, key, tenant } = account;
    for (const percent of budget.alertAt) {
      if (total * 100 < budget.limit * percent) return;
      const name = `alerts/${percent}/${budget.limit}/${key}`;
      if (this.#sent.has(ownedKey(tenant, name))) continue;
      this.#sendOnce(name, account, total, percent, webhook).catch((error) =>
        this.#services.logger.warn("a budget alert could not be sent", { budget: budget.name, reason: String(error) }),
      );
    }
  }

  async #sendOnce(
    name: string,
    account: Account,
    total: number,
    percent: number,
    webhook: Webhook | undefined,
  ): Promise<void> {
    if (this.#sent.size >= MAX_REMEMBERED) this.#sent.clear();
    const { store, tenant, expiresAtMs } = account;
    const id = ownedKey(tenant, name);
    this.#sent.add(id);
    try {
      if (!(await store.replace(name, undefined, "1", { expiresAtMs }))) return;
    } catch (error) {
      // A later call of the same account retries the alert.
      this.#sent.delete(id);
      throw error;
    }
    const { budget, owner } = account;
    const spent = `${formatAmount(budget.unit, total)} of ${formatAmount(budget.unit, budget.limit)}`;
    const unit = displayUnit(budget.unit);
    this.#count.labels(budget.name, String(percent)).add();
    this.#services.logger.warn("budget alert", {
      budget: budget.name,
      key: owner,
      percent,
      spent,
      unit,
      per: budget.per,
    });
    if (webhook !== undefined) await this.#post(webhook, alertPayload(account, total, percent));
  }

  async #post({ url, headers, fetch }: Webhook, alert: object): Promise<void> {
    const { clock } = this.#services;
    const body = Buffer.from(JSON.stringify(alert));
    for (let attempt = 0; ; attempt++) {
      try {
        const { status } = await fetch({
          url,
          method: "POST",
          headers: { "content-type": "application/json", ...headers },
          body,
          timeoutMs: TIMEOUT_MS,
          input: RESPONSE,
        });
        if (status >= 200 && status < 300) return;
        throw new Error(`the webhook answered ${status}`);
      } catch (error) {
        const pauseMs = PAUSES_MS[attempt];
        if (pauseMs === undefined) throw error;
        await wait(clock, pauseMs);
      }
    }
  }
}

function alertPayload({ budget, period, owner }: Account, total: number, percent: number): object {
  return {
    budget: budget.name,
    key: owner,
    unit: displayUnit(budget.unit),
    limit: fromStoredAmount(budget.unit, budget.limit),
    spent: fromStoredAmount(budget.unit, total),
    percent,
    per: budget.per,
    period: period.name,
    resetAt: new Date(period.endMs).toISOString(),
  };
}
