/**
 * Shows budgets with the spending of the current period.
 */
import { getJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { param } from "../../frame/router.ts";
import { visible, wholeText } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { amountText, type Budget } from "./budget-texts.ts";

/** Each read queries the store, so the interval is long. */
const INTERVAL_MS = 10_000;

export const budgets = createPoll(() => {
  const key = param("key");
  return getJson<{ budgets: Budget[] }>(`debug/budgets${key === "" ? "" : `?key=${encodeURIComponent(key)}`}`);
}, INTERVAL_MS);

export function Budgets() {
  return (
    <>
      {usePoll(budgets)?.budgets.map((budget) => (
        <BudgetPanel key={`${budget.owner} ${budget.name} ${budget.period}`} budget={budget} />
      ))}
    </>
  );
}

function BudgetPanel({ budget }: { budget: Budget }) {
  const { name, owner, unit, limit, per, hard, keysInUse, resetSeconds } = budget;
  return (
    <Panel
      title={
        <>
          Budget {visible(name)}: {amountText(limit, unit)} per {visible(per)}
        </>
      }
      end={<span class="muted mono">{visible(owner)}</span>}
    >
      <div class="stack">
        <div class="row">
          <span>{hard ? "rejects when it is spent" : "warns when it is spent"}</span>
          <span class="muted">
            {wholeText(keysInUse)} {keysInUse === 1 ? "key has" : "keys have"} spent something; resets in{" "}
            {wholeText(Math.ceil(resetSeconds / 3600))} h
          </span>
        </div>
        {budget.keys.length === 0 ? <p class="muted">Nothing was spent in this period.</p> : null}
        <ul class="buckets">
          {budget.keys.map(({ key, spent, remaining }) => (
            <li key={key}>
              <span class="mono ellipsis" title={visible(key)}>
                {key === "" ? "shared" : visible(key)}
              </span>
              <span
                class={`gauge ${remaining <= 0 ? "bad used-up" : remaining < limit / 4 ? "warn" : ""}`}
                aria-hidden="true"
              >
                <span style={{ width: `${Math.max(0, Math.min(1, remaining / limit)) * 100}%` }} />
              </span>
              <span class="number">
                {amountText(spent, unit)} <span class="muted">of {amountText(limit, unit)}</span>
              </span>
              <span class="number muted">
                {remaining <= 0 ? <Status level="bad">spent</Status> : `${amountText(remaining, unit)} left`}
              </span>
            </li>
          ))}
        </ul>
      </div>
    </Panel>
  );
}
