/**
 * Shows calls, errors, and latency of the MCP tools in the selected range, and charts of the selected tool.
 */
import { useEffect, useState } from "preact/hooks";
import type { TrafficRows } from "../../../../src/observe/trace/request-record.ts";
import { getJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { memorySeconds, range } from "../../data/traffic.ts";
import { readUsage } from "../../data/usage.ts";
import { pageHref, param, setParams, withParams } from "../../frame/router.ts";
import { durationText, visible, wholeText } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Sparkline } from "../../parts/sparkline.tsx";
import { Status } from "../../parts/status.tsx";
import { type ChartName, RangeChoice, TrafficChart } from "../../parts/traffic-chart.tsx";

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

const tools = createPoll(async () => {
  const rows = range().seconds > memorySeconds() ? await storedRows(range().seconds) : await rowsInMemory();
  return rows.sort((a, b) => b.calls - a.calls);
}, INTERVAL_MS);

async function rowsInMemory(): Promise<ToolRow[]> {
  const seconds = memorySeconds();
  const { rows, slotSeconds } = await getJson<TrafficRows>(`debug/history?by=tool&seconds=${seconds}`);
  // The trend starts with the gateway and is extended to the whole range.
  const padded = (trend: readonly number[]): number[] => [
    ...new Array<number>(Math.max(0, Math.ceil(seconds / slotSeconds) - trend.length)).fill(0),
    ...trend,
  ];
  return rows
    .filter(({ requests }) => requests > 0)
    .map(({ name: [server = "", tool = ""], requests, failed, rejected, p95Ms, trend }) => ({
      server,
      tool,
      calls: requests,
      errors: failed + rejected,
      latencyMs: p95Ms,
      trend: padded(trend),
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
          {selected === "" ? null : <ToolCharts name={selected} />}
        </>
      }
    >
      {rows.length === 0 ? (
        <p class="empty">No calls in the last {title}.</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Tool</th>
              <th scope="col">Server</th>
              <th scope="col" class="number">
                Calls
              </th>
              <th scope="col" class="number">
                Errors
              </th>
              <th scope="col" class="number">
                {seconds > memorySeconds() ? "Mean" : "p95"}
              </th>
              <th scope="col">
                <span class="unseen">Trend</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, limit).map((row) => (
              <Row key={`${row.server}/${row.tool}`} row={row} selected={selected} />
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Row({ row: { server, tool, calls, errors, latencyMs, trend }, selected }: { row: ToolRow; selected: string }) {
  const name = `${server}/${tool}`;
  const isSelected = name === selected;
  return (
    <tr class={isSelected ? "selected" : ""}>
      <td class="mono">
        <a href={withParams({ calls: isSelected ? "" : name })} aria-current={isSelected ? "true" : undefined}>
          {visible(tool)}
        </a>
      </td>
      <td class="mono muted">{visible(server)}</td>
      <td class="number">{wholeText(calls)}</td>
      <td class="number">{errors > 0 ? <Status level="bad">{wholeText(errors)}</Status> : "0"}</td>
      <td class="number">{durationText(latencyMs ?? undefined)}</td>
      <td>{trend.length === 0 ? null : <Sparkline values={trend} />}</td>
    </tr>
  );
}

function ToolCharts({ name }: { name: string }) {
  return (
    <section class="inset stack" aria-label={`Charts of ${visible(name)}`}>
      <div class="row between">
        <h3 class="mono">{visible(name)}</h3>
        <span class="row">
          <a href={pageHref("requests", { tool: name })}>View requests</a>
          <button type="button" class="button quiet" data-close onClick={() => setParams({ calls: "" })}>
            Close
          </button>
        </span>
      </div>
      <div class="charts">
        {TOOL_CHARTS.map(([chart, title]) => (
          <div key={chart}>
            <h3>{title}</h3>
            <TrafficChart name={chart} scope={{ tool: name }} height={140} />
          </div>
        ))}
      </div>
    </section>
  );
}
