/**
 * Budgets with what was spent of them in this period, and the API keys of the store with their models, expiry and budget.
 * Read only: keys are made and revoked with `gwctl keys`. Nothing stands here where there is neither.
 */
import { getJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { param } from "../../frame/router.ts";
import { visible, wholeText } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { amountText, type Budget, type StoredKey, stateOfKey } from "./budget-texts.ts";

/** They are read from the store. */
const INTERVAL_MS = 10_000;

export const budgets = createPoll(() => {
  const key = param("key");
  return getJson<{ budgets: Budget[] }>(`debug/budgets${key === "" ? "" : `?key=${encodeURIComponent(key)}`}`);
}, INTERVAL_MS);
const keys = createPoll(() => getJson<{ keys: StoredKey[] }>("keys"), INTERVAL_MS);

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
            {wholeText(keysInUse)} {keysInUse === 1 ? "key has" : "keys have"} spent something; begins anew in{" "}
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
                class={`gauge ${remaining <= 0 ? "bad empty" : remaining < limit / 4 ? "warn" : ""}`}
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

export function Keys() {
  const loaded = usePoll(keys);
  if (loaded === undefined || loaded.keys.length === 0) return null;
  return (
    <Panel title="API keys of the store" flush>
      <table>
        <thead>
          <tr>
            <th scope="col">name</th>
            <th scope="col">id</th>
            <th scope="col">models</th>
            <th scope="col">budget</th>
            <th scope="col">state</th>
          </tr>
        </thead>
        <tbody>
          {loaded.keys.map((key) => {
            const { level, text } = stateOfKey(key);
            return (
              <tr key={key.id}>
                <td>{visible(key.name)}</td>
                <td class="mono">{visible(key.id)}</td>
                <td class="mono wrap">{key.models === undefined ? "all" : visible(key.models.join(", "))}</td>
                <td>{budgetText(key)}</td>
                <td>
                  <Status level={level}>{visible(text)}</Status>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Panel>
  );
}

function budgetText({ budget, spent }: StoredKey): string {
  if (budget === undefined) return "none";
  const unit = budget.cost === undefined ? "tokens" : "usd";
  const limit = budget.cost ?? budget.tokens ?? 0;
  return `${amountText(spent ?? 0, unit)} of ${amountText(limit, unit)} per ${visible(budget.per)}`;
}
