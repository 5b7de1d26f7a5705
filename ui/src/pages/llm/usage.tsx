/**
 * Shows tokens over time by model, and calls, tokens, and cost by model, key, user, and route.
 */
import { useEffect } from "preact/hooks";
import { dollarText, percentText, shortText, wholeText } from "../../../../src/base/format.ts";
import type { TrafficRows } from "../../../../src/record/trace/traffic-numbers.ts";
import { getJson } from "../../data/api.ts";
import { createPoll, type Polled, usePoll } from "../../data/poll.ts";
import { hasHistory, memorySeconds, range, trafficOf } from "../../data/traffic.ts";
import { readUsage } from "../../data/usage.ts";
import { param, setParams } from "../../frame/router.ts";
import { Chart } from "../../parts/chart.tsx";
import { Panel, Skeleton } from "../../parts/panel.tsx";
import { ScopeCharts } from "../../parts/scope-charts.tsx";
import { ScrollX } from "../../parts/scroll-x.tsx";
import { nameColumn, type ShownColumn, SortedTable } from "../../parts/sorted-table.tsx";
import { Tabs } from "../../parts/tabs.tsx";
import { type ChartName, RangeChoice } from "../../parts/traffic-chart.tsx";

const BY = ["model", "key", "user", "route"] as const;
type By = (typeof BY)[number];
const USED_CHARTS: readonly (readonly [name: ChartName, title: string])[] = [
  ["requests", "Calls"],
  ["latency", "Latency"],
  ["tokens", "Tokens"],
  ["cost", "Cost"],
];

const INTERVAL_MS = 5_000;
/** The chart has one color for each model. */
const CHART_MODELS = 6;

interface UsedRow {
  readonly name: string;
  readonly requests: number;
  readonly failed: number;
  readonly tokens: number;
  readonly cost: number;
}

const polls = new Map<string, Polled<readonly UsedRow[]>>();

function usedBy(by: By): Polled<readonly UsedRow[]> {
  const { seconds } = range();
  const key = `${by} ${seconds} ${hasHistory.value}`;
  const known = polls.get(key);
  if (known) return known;
  const isStored = hasHistory.value && (by === "user" || seconds > memorySeconds());
  const poll = createPoll(() => (isStored ? storedRows(by, seconds) : rowsInMemory(by)), INTERVAL_MS);
  polls.set(key, poll);
  return poll;
}

async function storedRows(by: By, seconds: number): Promise<UsedRow[]> {
  const { rows } = await readUsage([by], { since: `${seconds}s` });
  return rows
    .map((row) => ({ ...row, name: row[by] ?? "", tokens: row.inputTokens + row.outputTokens }))
    .filter(({ tokens, name }) => tokens > 0 || (by === "model" && name !== ""));
}

async function rowsInMemory(by: By): Promise<UsedRow[]> {
  const group = by === "route" ? "node" : by;
  const { rows } = await getJson<TrafficRows>(`debug/history?by=${group}&seconds=${memorySeconds()}`);
  const sums = new Map<string, UsedRow>();
  for (const row of rows) {
    if (row.tokens === 0 && by !== "model") continue;
    const name = row.name[by === "route" ? 1 : 0] ?? "";
    const sum = sums.get(name) ?? { name, requests: 0, failed: 0, tokens: 0, cost: 0 };
    sums.set(name, {
      name,
      requests: sum.requests + row.requests,
      failed: sum.failed + row.failed,
      tokens: sum.tokens + row.tokens,
      cost: sum.cost + row.cost,
    });
  }
  return [...sums.values()].sort((a, b) => b.tokens - a.tokens);
}

export function UsagePanel() {
  const by = BY.find((name) => name === param("by")) ?? "model";
  const selected = param("used");
  const used = usePoll(usedBy(by));
  return (
    <Panel title="Usage" end={<RangeChoice />}>
      <div class="stack">
        <TokenChart />
        <Tabs<By>
          label="Usage by"
          tabs={[
            { name: "model", title: "By model" },
            { name: "key", title: "By key" },
            ...(hasHistory.value ? [{ name: "user" as const, title: "By user" }] : []),
            { name: "route", title: "By route" },
          ]}
          selected={by}
          onSelect={(name) => setParams({ by: name === "model" ? "" : name, used: "" }, { replace: true })}
        />
        {used === undefined ? (
          <Skeleton lines={2} />
        ) : used.length === 0 ? (
          <p class="muted">
            {by === "key"
              ? "No LLM calls with an API key in this range."
              : "No LLM calls in this range. Send a message in the chat."}
          </p>
        ) : (
          <UsedTable by={by} rows={used} />
        )}
        {selected === "" ? null : (
          <ScopeCharts
            name={selected}
            scope={{ [by]: selected }}
            charts={USED_CHARTS}
            {...(by === "route" ? { requests: { route: selected } } : {})}
            onClose={() => setParams({ used: "" })}
          />
        )}
      </div>
    </Panel>
  );
}

const TITLES: Readonly<Record<By, string>> = { model: "Model", key: "Key", user: "User", route: "Route" };

const NUMBERS: readonly ShownColumn<UsedRow>[] = [
  { title: "Calls", kind: "number", value: (row) => row.requests, cell: (row) => wholeText(row.requests) },
  {
    title: "Failed",
    kind: "number",
    value: (row) => row.failed / row.requests,
    cell: ({ failed, requests }) => (failed === 0 ? "" : percentText(failed / requests)),
  },
  { title: "Tokens", kind: "number", value: (row) => row.tokens, cell: (row) => shortText(row.tokens) },
  {
    title: "Cost",
    kind: "number",
    value: (row) => row.cost,
    cell: ({ cost }) => (cost === 0 ? "" : dollarText(cost)),
  },
];

function UsedTable({ by, rows }: { by: By; rows: readonly UsedRow[] }) {
  const columns = [nameColumn<UsedRow>(TITLES[by], ({ name }) => name, "used"), ...NUMBERS];
  return (
    <ScrollX>
      <SortedTable
        columns={columns}
        rows={rows}
        keyOf={({ name }) => name}
        start="Tokens"
        isSelected={({ name }) => name !== "" && name === param("used")}
      />
    </ScrollX>
  );
}

function TokenChart() {
  const names = (usePoll(usedBy("model")) ?? [])
    .filter(({ tokens }) => tokens > 0)
    .slice(0, CHART_MODELS)
    .map(({ name }) => name);
  const list = names.map((model) => trafficOf({ model }));
  useEffect(() => {
    const stops = list.map((poll) => poll.watch());
    return () => {
      for (const stop of stops) stop();
    };
  }, [names.join("\n"), range().seconds]);
  const reports = list.map((poll) => poll.value.value);
  const first = reports[0];
  // The height is reserved, so that the page does not move when the data arrives.
  if (first === undefined) return <div class="chart-space muted">No tokens in this range.</div>;
  const times = first.points.map(({ at }) => at);
  return (
    <Chart
      title={`Tokens by model in the last ${range().title}`}
      times={times}
      slotSeconds={first.slotSeconds}
      kind="bars"
      format={shortText}
      isCount
      height={160}
      series={names.map((name, i) => {
        const tokens = new Map(reports[i]?.points.map((point) => [point.at, point.tokens]));
        return { name, color: `--chart-${i + 1}`, values: times.map((at) => tokens.get(at) ?? 0) };
      })}
    />
  );
}
