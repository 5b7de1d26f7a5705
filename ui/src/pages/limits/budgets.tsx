/**
 * Shows budgets with the spending of the current period.
 */
import { useEffect } from "preact/hooks";
import { ageText, wholeText } from "../../../../src/base/format.ts";
import { getJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { param } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { amountText, type Budget } from "./budget-texts.ts";
import { UsageGauge } from "./usage-gauge.tsx";

/** Each read queries the store, so the interval is long. */
const INTERVAL_MS = 10_000;

export const budgets = createPoll(() => {
  const key = param("key");
  return getJson<{ budgets: Budget[] }>(`debug/budgets${key === "" ? "" : `?key=${encodeURIComponent(key)}`}`);
}, INTERVAL_MS);

export function Budgets() {
  const loaded = usePoll(budgets)?.budgets;
  const linked = loaded?.findIndex(({ name }) => name === param("budget")) ?? -1;
  useEffect(() => {
    if (linked >= 0) document.getElementById(idOf(linked))?.scrollIntoView({ block: "center" });
  }, [linked]);
  return (
    <>
      {loaded?.map((budget, i) => (
        <BudgetPanel key={`${budget.owner} ${budget.name} ${budget.period}`} id={idOf(i)} budget={budget} />
      ))}
    </>
  );
}

function idOf(index: number): string {
  return `budget-${index}`;
}

function BudgetPanel({ id, budget }: { id: string; budget: Budget }) {
  const { name, owner, unit, limit, per, hard, keysInUse, resetSeconds } = budget;
  return (
    <Panel
      id={id}
      title={
        <>
          Budget {visible(name)}: {amountText(limit, unit)} per {visible(per)}
        </>
      }
      end={<span class="muted mono">{visible(owner)}</span>}
    >
      <div class="stack">
        <div class="row">
          <span>{hard ? "Rejects calls when exhausted" : "Only sends alerts"}</span>
          <span class="muted">
            {keysInUse === 1 ? "1 key" : `${wholeText(keysInUse)} keys`} with spending · resets in{" "}
            {ageText(resetSeconds * 1000)}
          </span>
        </div>
        {budget.keys.length === 0 ? <p class="muted">Nothing was spent in this period.</p> : null}
        <ul class="buckets">
          {[...budget.keys]
            .sort((a, b) => b.spent - a.spent)
            .map(({ key, spent, remaining }) => (
              <UsageGauge
                key={key}
                name={key === "" || key === "(all)" ? "all clients" : key}
                share={spent / limit}
                used={
                  <>
                    {amountText(spent, unit)} <span class="muted">of {amountText(limit, unit)}</span>
                  </>
                }
                note={remaining <= 0 ? "exhausted" : `${amountText(remaining, unit)} left`}
              />
            ))}
        </ul>
      </div>
    </Panel>
  );
}
