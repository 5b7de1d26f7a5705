/**
 * Spend over time by key, user, team, or model, from the history database, with CSV export. Without the database, shows
 * the totals of the last day.
 */
import { useState } from "preact/hooks";
import { dollarText, percentText, shortText, wholeText } from "../../../../src/base/format.ts";
import type { TrafficRows } from "../../../../src/record/trace/traffic-numbers.ts";
import { getJson } from "../../data/api.ts";
import { createPoll, type Polled, usePoll } from "../../data/poll.ts";
import { readUsage, type UsageReport } from "../../data/usage.ts";
import { param, setParams } from "../../frame/router.ts";
import { Chart } from "../../parts/chart.tsx";
import { download } from "../../parts/csv.ts";
import { visible } from "../../parts/format.ts";
import { Panel, Skeleton } from "../../parts/panel.tsx";
import { ScrollX } from "../../parts/scroll-x.tsx";
import { nameColumn, type ShownColumn, SortedTable } from "../../parts/sorted-table.tsx";
import { Tabs } from "../../parts/tabs.tsx";
import { chartSeries, csvOf, type SpendBy, type SpendTotal, totalsBy } from "./spend-rows.ts";

const INTERVAL_MS = 30_000;
const SHOWN_ROWS = 50;

const PERIODS = [
  { name: "24h", title: "24 h", unit: "hour", slots: 24 },
  { name: "7d", title: "7 d", unit: "day", slots: 7 },
  { name: "", title: "30 d", unit: "day", slots: 30 },
  { name: "90d", title: "90 d", unit: "day", slots: 90 },
] as const;

const TABS = [
  { name: "key", title: "By key" },
  { name: "user", title: "By user" },
  { name: "team", title: "By team" },
  { name: "model", title: "By model" },
] as const;

const polls = new Map<string, Polled<UsageReport>>();

function spendOf(by: SpendBy, unit: "hour" | "day", since: string): Polled<UsageReport> {
  const key = `${by} ${since}`;
  const poll = polls.get(key) ?? createPoll(() => readUsage([unit, by], { since }), INTERVAL_MS);
  polls.set(key, poll);
  return poll;
}

export function Spend() {
  const by = TABS.find(({ name }) => name === param("by"))?.name ?? "key";
  const period = PERIODS.find(({ name }) => name === param("period")) ?? PERIODS[2];
  const since = period.name === "" ? "30d" : period.name;
  const poll = spendOf(by, period.unit, since);
  const report = usePoll(poll);
  return (
    <Panel
      title="Spend"
      end={
        <fieldset class="ranges" aria-label="Period">
          {PERIODS.map(({ name, title }) => (
            <button
              key={name}
              type="button"
              aria-pressed={name === period.name}
              onClick={() => setParams({ period: name }, { replace: true })}
            >
              {title}
            </button>
          ))}
        </fieldset>
      }
    >
      <div class="stack">
        <div class="row between">
          <Tabs<SpendBy>
            label="Spend by"
            tabs={TABS}
            selected={by}
            onSelect={(name) => setParams({ by: name === "key" ? "" : name }, { replace: true })}
          />
          {report === undefined ? null : (
            <button type="button" class="button" onClick={() => download(`spend-by-${by}-${since}.csv`, csvOf(report))}>
              Download CSV
            </button>
          )}
        </div>
        {poll.error.value === undefined ? null : <p class="note bad">{visible(poll.error.value)}</p>}
        {report === undefined ? <Skeleton lines={6} /> : <SpendView report={report} by={by} slots={period.slots} />}
      </div>
    </Panel>
  );
}

function SpendView({ report, by, slots }: { report: UsageReport; by: SpendBy; slots: number }) {
  const [isWhole, setIsWhole] = useState(false);
  const rows = totalsBy(report.rows, by);
  const { times, series, slotSeconds } = chartSeries(report, by, slots, Date.now());
  const { total } = report;
  return (
    <>
      <p class="sums">
        <strong>{dollarText(total.cost)}</strong> <span class="muted">for</span>{" "}
        {shortText(total.inputTokens + total.outputTokens)} tokens <span class="muted">in</span>{" "}
        {wholeText(total.requests)} requests
      </p>
      <Chart
        title={`Spend by ${by}`}
        times={times}
        slotSeconds={slotSeconds}
        series={series}
        kind="bars"
        format={dollarText}
        height={200}
      />
      <ScrollX>
        <SortedTable
          columns={[nameColumn<SpendTotal>(TITLES[by], ({ name }) => name), ...TOTALS, shareOf(total.cost)]}
          rows={rows}
          keyOf={({ name }) => name}
          start="Cost"
          {...(isWhole ? {} : { limit: SHOWN_ROWS })}
        />
      </ScrollX>
      {rows.length === 0 ? <p class="muted">No requests in this period.</p> : null}
      {rows.length > SHOWN_ROWS && !isWhole ? (
        <button type="button" class="button quiet" onClick={() => setIsWhole(true)}>
          Show {rows.length - SHOWN_ROWS} more
        </button>
      ) : null}
    </>
  );
}

const TITLES: Readonly<Record<SpendBy, string>> = { key: "Key", user: "User", team: "Team", model: "Model" };

const costText = (cost: number): string => (cost === 0 ? "" : dollarText(cost));

const TOTALS: readonly ShownColumn<SpendTotal>[] = [
  { title: "Requests", kind: "number", value: (row) => row.requests, cell: (row) => wholeText(row.requests) },
  {
    title: "Failed",
    kind: "number",
    value: (row) => row.failed,
    cell: ({ failed }) => (failed === 0 ? "" : wholeText(failed)),
  },
  { title: "Input tokens", kind: "number", value: (row) => row.inputTokens, cell: (row) => shortText(row.inputTokens) },
  {
    title: "Output tokens",
    kind: "number",
    value: (row) => row.outputTokens,
    cell: (row) => shortText(row.outputTokens),
  },
  { title: "Cost", kind: "number", value: (row) => row.cost, cell: (row) => costText(row.cost) },
];

function shareOf(total: number): ShownColumn<SpendTotal> {
  return {
    title: "Share",
    kind: "number",
    value: (row) => row.cost,
    cell: ({ cost }) => (cost === 0 ? "" : percentText(cost / total)),
  };
}

const inMemory = createPoll(async () => {
  const read = (by: "key" | "model"): Promise<TrafficRows> => getJson(`debug/history?by=${by}&seconds=86400`);
  const [keys, models] = await Promise.all([read("key"), read("model")]);
  return { keys: keys.rows, models: models.rows };
}, INTERVAL_MS);

/** Without a history database, the gateway knows only keys and models, for a day. */
export function MemorySpend() {
  const report = usePoll(inMemory);
  return (
    <Panel title="Spend in the last 24 h">
      <div class="stack">
        {report === undefined ? (
          <Skeleton lines={3} />
        ) : (
          <div class="columns">
            <MemoryTable title="Key" rows={report.keys} />
            <MemoryTable title="Model" rows={report.models} />
          </div>
        )}
        <p class="note">
          For spend by user, team, and day, and for longer than a day, set <code>{"config: { history: {} }"}</code> and
          restart the gateway.
        </p>
      </div>
    </Panel>
  );
}

type MemoryRow = TrafficRows["rows"][number];

const nameOf = ({ name: [name = ""] }: MemoryRow): string => name;

const MEMORY_TOTALS: readonly ShownColumn<MemoryRow>[] = [
  { title: "Requests", kind: "number", value: (row) => row.requests, cell: (row) => wholeText(row.requests) },
  { title: "Tokens", kind: "number", value: (row) => row.tokens, cell: (row) => shortText(row.tokens) },
  { title: "Cost", kind: "number", value: (row) => row.cost, cell: (row) => costText(row.cost) },
];

function MemoryTable({ title, rows }: { title: string; rows: readonly MemoryRow[] }) {
  if (rows.length === 0) return <p class="muted">No requests with a {title.toLowerCase()}.</p>;
  return (
    <ScrollX>
      <SortedTable columns={[nameColumn(title, nameOf), ...MEMORY_TOTALS]} rows={rows} keyOf={nameOf} start="Cost" />
    </ScrollX>
  );
}
