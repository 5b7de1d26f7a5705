/**
 * Shows calls, errors, and latency of the MCP tools in the selected range, and charts of the selected tool.
 */
import { useEffect, useState } from "preact/hooks";
import { durationText, wholeText } from "../../../../src/base/format.ts";
import type { TrafficRows } from "../../../../src/record/trace/traffic-numbers.ts";
import { getJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { memorySeconds, range } from "../../data/traffic.ts";
import { readUsage } from "../../data/usage.ts";
import { param, setParams, withParams } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { ScopeCharts } from "../../parts/scope-charts.tsx";
import { type ShownColumn, SortedTable } from "../../parts/sorted-table.tsx";
import { Sparkline } from "../../parts/sparkline.tsx";
import { Status } from "../../parts/status.tsx";
import { type ChartName, RangeChoice } from "../../parts/traffic-chart.tsx";

const INTERVAL_MS = 5_000;
const SHOWN = 10;
const TOOL_CHARTS: readonly (readonly [name: ChartName, title: string])[] = [
  ["requests", "Calls"],
  ["errors", "Errors"],
  ["latency", "Latency"],
];

interface ToolRow {
  readonly server: string;
  readonly tool: string;
  readonly calls: number;
  readonly errors: number;
  /** The 95th percentile, or the mean for ranges from the database. */
  readonly latencyMs: number | null;
  readonly trend: readonly number[];
}

const tools = createPoll(
  () => (range().seconds > memorySeconds() ? storedRows(range().seconds) : rowsInMemory()),
  INTERVAL_MS,
);

async function rowsInMemory(): Promise<ToolRow[]> {
  const seconds = memorySeconds();
  const { rows } = await getJson<TrafficRows>(`debug/history?by=tool&seconds=${seconds}`);
  return rows
    .filter(({ requests }) => requests > 0)
    .map(({ name: [server = "", tool = ""], requests, failed, rejected, p95Ms, trend }) => ({
      server,
      tool,
      calls: requests,
      errors: failed + rejected,
      latencyMs: p95Ms,
      trend,
    }));
}

async function storedRows(seconds: number): Promise<ToolRow[]> {
  const { rows } = await readUsage(["server", "tool"], { since: `${seconds}s` });
  return rows
    .filter(({ tool }) => tool !== "")
    .map(({ server = "", tool = "", requests, failed, rejected, durationMs }) => ({
      server,
      tool,
      calls: requests,
      errors: failed + rejected,
      latencyMs: requests === 0 ? null : durationMs / requests,
      trend: [],
    }));
}

export function ToolCalls() {
  const rows = usePoll(tools) ?? [];
  const { seconds, title } = range();
  const [limit, setLimit] = useState(SHOWN);
  useEffect(() => {
    void tools.refresh();
  }, [seconds]);
  const selected = param("calls");
  // Without calls, the panel appears only if the user selected a range or a tool.
  if (rows.length === 0 && selected === "" && param("range") === "") return null;
  return (
    <Panel
      title="Tool calls"
      end={<RangeChoice />}
      flush
      below={
        <>
          {rows.length > limit ? (
            <button type="button" class="button quiet" onClick={() => setLimit(limit + SHOWN)}>
              Show {Math.min(SHOWN, rows.length - limit)} more
            </button>
          ) : null}
          {selected === "" ? null : (
            <ScopeCharts
              name={selected}
              scope={{ tool: selected }}
              charts={TOOL_CHARTS}
              requests={{ tool: selected }}
              onClose={() => setParams({ calls: "" })}
            />
          )}
        </>
      }
    >
      {rows.length === 0 ? (
        <p class="empty">No calls in the last {title}.</p>
      ) : (
        <SortedTable
          columns={[TOOL, SERVER, CALLS, ERRORS, latencyColumn(seconds > memorySeconds() ? "Mean" : "p95"), TREND]}
          rows={rows}
          keyOf={nameOf}
          start="Calls"
          limit={limit}
          isSelected={(row) => nameOf(row) === selected}
        />
      )}
    </Panel>
  );
}

function nameOf({ server, tool }: ToolRow): string {
  return `${server}/${tool}`;
}

const TOOL: ShownColumn<ToolRow> = {
  title: "Tool",
  kind: "text",
  class: "mono",
  value: ({ tool }) => tool,
  cell: (row) => {
    const isSelected = nameOf(row) === param("calls");
    return (
      <a href={withParams({ calls: isSelected ? "" : nameOf(row) })} aria-current={isSelected ? "true" : undefined}>
        {visible(row.tool)}
      </a>
    );
  },
};

const SERVER: ShownColumn<ToolRow> = {
  title: "Server",
  kind: "text",
  class: "mono muted",
  value: ({ server }) => server,
  cell: ({ server }) => visible(server),
};

const CALLS: ShownColumn<ToolRow> = {
  title: "Calls",
  kind: "number",
  value: ({ calls }) => calls,
  cell: ({ calls }) => wholeText(calls),
};

const ERRORS: ShownColumn<ToolRow> = {
  title: "Errors",
  kind: "number",
  value: ({ errors }) => errors,
  cell: ({ errors }) => (errors > 0 ? <Status level="bad">{wholeText(errors)}</Status> : "0"),
};

function latencyColumn(title: string): ShownColumn<ToolRow> {
  return {
    title,
    kind: "number",
    value: ({ latencyMs }) => latencyMs,
    cell: ({ latencyMs }) => durationText(latencyMs ?? undefined),
  };
}

const TREND: ShownColumn<ToolRow> = {
  title: "Trend",
  kind: "text",
  cell: ({ trend }) => (trend.length === 0 ? null : <Sparkline values={trend} />),
};
