/**
 * Lists, creates, and revokes the API keys in the store. A new key is shown only once.
 */
import { useState } from "preact/hooks";
import { getJson, postJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { CopyButton } from "../../parts/copy.tsx";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { SureButton } from "../../parts/sure-button.tsx";
import { amountText, keyOrder, type StoredKey, stateOfKey } from "./budget-texts.ts";

/** Each read queries the store, so the interval is long. */
const INTERVAL_MS = 10_000;

const keys = createPoll(() => getJson<{ keys: StoredKey[] }>("keys"), INTERVAL_MS);

export function Keys() {
  const loaded = usePoll(keys);
  if (loaded === undefined) return null;
  return (
    <Panel
      title="API keys of the store"
      flush
      below={
        <div class="inset">
          <MakeKey />
        </div>
      }
    >
      {loaded.keys.length === 0 ? (
        <div class="empty">
          <p>
            No keys. Routes with <code>{"apiKey: { stored: true }"}</code> accept the keys that you make here.
          </p>
        </div>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">name</th>
              <th scope="col">id</th>
              <th scope="col">models</th>
              <th scope="col">budget</th>
              <th scope="col">state</th>
              <th scope="col">action</th>
            </tr>
          </thead>
          <tbody>
            {loaded.keys.map((key) => (
              <KeyRow key={key.id} stored={key} />
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function KeyRow({ stored }: { stored: StoredKey }) {
  const { level, text } = stateOfKey(stored);
  return (
    <tr>
      <td>{visible(stored.name)}</td>
      <td class="mono">{visible(stored.id)}</td>
      <td class="mono wrap">{stored.models === undefined ? "all" : visible(stored.models.join(", "))}</td>
      <td>{budgetText(stored)}</td>
      <td>
        <Status level={level}>{visible(text)}</Status>
      </td>
      <td>
        <SureButton
          label="Revoke"
          onSure={async () => {
            await postJson("keys", { revoke: stored.id });
            await keys.refresh();
          }}
        />
      </td>
    </tr>
  );
}

function MakeKey() {
  const [form, setForm] = useState({ name: "", models: "", days: "", amount: "", unit: "cost", per: "month" });
  const [made, setMade] = useState<{ readonly id: string; readonly key: string } | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const set = (field: keyof typeof form) => (event: { currentTarget: { value: string } }) =>
    setForm({ ...form, [field]: event.currentTarget.value });
  const make = async (): Promise<void> => {
    const order = keyOrder(form, Date.now());
    if ("problem" in order) {
      setProblem(order.problem);
      return;
    }
    try {
      setMade(await postJson("keys", order));
      setProblem(undefined);
      setForm({ ...form, name: "" });
      await keys.refresh();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <details class="add">
      <summary class="button">Make a key</summary>
      <form
        class="stack inset"
        onSubmit={(event) => {
          event.preventDefault();
          void make();
        }}
      >
        <div class="row">
          <Field label="Name" value={form.name} onInput={set("name")} />
          <Field label="Models, by comma (default: all)" value={form.models} onInput={set("models")} />
          <Field label="Days until it expires (default: never)" value={form.days} onInput={set("days")} />
        </div>
        <div class="row">
          <Field label="Budget (default: none)" value={form.amount} onInput={set("amount")} />
          <Choice label="Unit" value={form.unit} onChange={set("unit")} of={{ cost: "US dollars", tokens: "tokens" }} />
          <Choice
            label="Per"
            value={form.per}
            onChange={set("per")}
            of={{ day: "day", week: "week", month: "month" }}
          />
        </div>
        {problem === undefined ? null : <p class="note bad">{visible(problem)}</p>}
        <div class="row">
          <button type="submit" class="button primary" disabled={form.name.trim() === ""}>
            Make
          </button>
        </div>
        {made === undefined ? null : (
          <div class="note" role="status">
            <p>
              <strong>Copy the key now.</strong> It is shown this once, and the gateway keeps only its digest.
            </p>
            <div class="row">
              <code class="wrap">{made.key}</code>
              <CopyButton text={made.key} />
              <button type="button" class="button" onClick={() => setMade(undefined)}>
                Done
              </button>
            </div>
          </div>
        )}
      </form>
    </details>
  );
}

type OnInput = (event: { currentTarget: { value: string } }) => void;

function Field({ label, value, onInput }: { label: string; value: string; onInput: OnInput }) {
  return (
    <label class="field">
      <span>{label}</span>
      <input class="input" value={value} onInput={onInput} />
    </label>
  );
}

function Choice(props: { label: string; value: string; onChange: OnInput; of: Readonly<Record<string, string>> }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <select class="input" value={props.value} onChange={props.onChange}>
        {Object.entries(props.of).map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

function budgetText({ budget, spent }: StoredKey): string {
  if (budget === undefined) return "none";
  const unit = budget.cost === undefined ? "tokens" : "usd";
  const limit = budget.cost ?? budget.tokens ?? 0;
  return `${amountText(spent ?? 0, unit)} of ${amountText(limit, unit)} per ${visible(budget.per)}`;
}
