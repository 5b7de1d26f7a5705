/**
 * Lists, creates and revokes the API keys in the store. A new key is shown only once.
 */
import { useState } from "preact/hooks";
import { dollarText } from "../../../../src/base/format.ts";
import type { TrafficRows } from "../../../../src/record/trace/traffic-numbers.ts";
import { getJson, postJson } from "../../data/api.ts";
import { rememberKey } from "../../data/credential.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { KEYS_INTERVAL_MS, type StoredKey, storedKeys } from "../../data/stored-keys.ts";
import { hasHistory } from "../../data/traffic.ts";
import { readUsage } from "../../data/usage.ts";
import { CopyButton } from "../../parts/copy.tsx";
import { Dialog } from "../../parts/dialog.tsx";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { amountText, keyOrder, stateOfKey } from "../limits/budget-texts.ts";

const DAY_SECONDS = 86_400;

interface KeyUse {
  /** Undefined if only the hour is known, because an earlier version stored it. */
  readonly lastUsed: number | undefined;
  readonly cost: number;
}

/** Maps the names of keys to their use in the last 30 days, or in the last day without a history database. */
const uses = createPoll(readUses, KEYS_INTERVAL_MS);

async function readUses(): Promise<ReadonlyMap<string, KeyUse>> {
  const found = new Map<string, KeyUse>();
  if (hasHistory.peek()) {
    const { rows } = await readUsage(["key"], { since: "30d" });
    for (const { key = "", lastAt, cost } of rows) found.set(key, { lastUsed: timeOf(lastAt), cost });
    return found;
  }
  const report = await getJson<TrafficRows>(`debug/history?by=key&seconds=${DAY_SECONDS}`);
  for (const { name, lastAt, cost } of report.rows) found.set(name[0] ?? "", { lastUsed: timeOf(lastAt), cost });
  return found;
}

function timeOf(at: string | null | undefined): number | undefined {
  return at ? Date.parse(at) : undefined;
}

export function KeyList() {
  const loaded = usePoll(storedKeys);
  const used = usePoll(uses);
  const [isCreating, setIsCreating] = useState(false);
  const [revoked, setRevoked] = useState<StoredKey | undefined>(undefined);
  if (loaded === undefined) return null;
  return (
    <Panel
      title="API keys"
      end={
        <button type="button" class="button" onClick={() => setIsCreating(true)}>
          Create key
        </button>
      }
      flush
    >
      {loaded.length === 0 ? (
        <div class="empty">
          <p>
            No stored keys. Routes with <code>{"apiKey: { stored: true }"}</code> accept the keys that you create here.
            Keys in the configuration file are not listed.
          </p>
        </div>
      ) : (
        <table>
          <thead>
            <tr>
              {["Name", "ID", "Owner", "Created", "Last used", "Spent", "Budget", "Models", "State"].map((title) => (
                <th key={title} scope="col">
                  {title}
                </th>
              ))}
              <th scope="col">
                <span class="unseen">Revoke</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {loaded.map((key) => (
              <KeyRow key={key.id} stored={key} use={used?.get(key.name)} onRevoke={() => setRevoked(key)} />
            ))}
          </tbody>
        </table>
      )}
      {isCreating ? <CreateKey onClose={() => setIsCreating(false)} /> : null}
      {revoked ? <RevokeKey stored={revoked} onClose={() => setRevoked(undefined)} /> : null}
    </Panel>
  );
}

function KeyRow(props: { stored: StoredKey; use: KeyUse | undefined; onRevoke: () => void }) {
  const { stored, use, onRevoke } = props;
  const { level, text } = stateOfKey(stored);
  const owner = stored.metadata?.user_id ?? stored.metadata?.team;
  return (
    <tr>
      <td>{visible(stored.name)}</td>
      <td class="mono">{visible(stored.id)}</td>
      <td>{owner === undefined ? <span class="muted">–</span> : visible(owner)}</td>
      <td>
        <Ago at={stored.createdAt} />
      </td>
      <td>{use?.lastUsed === undefined ? <span class="muted">–</span> : <Ago at={use.lastUsed} />}</td>
      <td class="number">{use === undefined || use.cost === 0 ? "" : dollarText(use.cost)}</td>
      <td>{budgetText(stored)}</td>
      <td class="mono wrap">{stored.models === undefined ? "all" : visible(stored.models.join(", "))}</td>
      <td>
        <Status level={level}>{visible(text)}</Status>
      </td>
      <td>
        <button type="button" class="button" onClick={onRevoke}>
          Revoke
        </button>
      </td>
    </tr>
  );
}

function RevokeKey({ stored, onClose }: { stored: StoredKey; onClose: () => void }) {
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const revoke = async (): Promise<void> => {
    try {
      await postJson("keys", { revoke: stored.id });
      await storedKeys.refresh();
      onClose();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <Dialog title={`Revoke ${visible(stored.name)}?`} onClose={onClose}>
      <p>
        Requests with the key <code>{visible(stored.id)}</code> are rejected within 2 seconds. You cannot undo this.
      </p>
      {problem === undefined ? null : <p class="note bad">{visible(problem)}</p>}
      <div class="row end">
        <button type="button" class="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button danger" onClick={() => void revoke()}>
          Revoke key
        </button>
      </div>
    </Dialog>
  );
}

function CreateKey({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState({
    name: "",
    owner: "",
    team: "",
    models: "",
    days: "",
    amount: "",
    unit: "cost",
    per: "month",
  });
  const [created, setCreated] = useState<{ readonly id: string; readonly key: string } | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const set = (field: keyof typeof form) => (event: { currentTarget: { value: string } }) =>
    setForm({ ...form, [field]: event.currentTarget.value });
  const create = async (): Promise<void> => {
    const order = keyOrder(form, Date.now());
    if ("problem" in order) {
      setProblem(order.problem);
      return;
    }
    try {
      const made = await postJson<{ id: string; key: string }>("keys", order);
      rememberKey(made.id, made.key);
      setCreated(made);
      await storedKeys.refresh();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  if (created !== undefined)
    return (
      <Dialog title="Copy the key now" onClose={onClose}>
        <p>The key is shown only once. The gateway stores only its digest.</p>
        <code class="code wrapped">{created.key}</code>
        <div class="row end">
          <CopyButton text={created.key} />
          <button type="button" class="button primary" onClick={onClose}>
            Done
          </button>
        </div>
      </Dialog>
    );
  return (
    <Dialog title="Create an API key" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <Field label="Name" value={form.name} onInput={set("name")} />
        <div class="fields">
          <Field label="User (optional)" value={form.owner} onInput={set("owner")} />
          <Field label="Team (optional)" value={form.team} onInput={set("team")} />
        </div>
        <Field label="Models, separated by commas (default: all)" value={form.models} onInput={set("models")} />
        <Field label="Days until it expires (default: never)" value={form.days} onInput={set("days")} />
        <div class="fields">
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
        <div class="row end">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button primary" disabled={form.name.trim() === ""}>
            Create
          </button>
        </div>
      </form>
    </Dialog>
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
