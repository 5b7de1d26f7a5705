/**
 * Shows six key numbers of the selected range. Each is a link to its chart.
 */

import { dollarText, durationText, percentText, rateText, shortText, wholeText } from "../../../../src/base/format.ts";
import { perSecond, shareOf } from "../../../../src/record/trace/traffic-numbers.ts";
import { usePoll } from "../../data/poll.ts";
import { range, trafficOf } from "../../data/traffic.ts";
import { withParams } from "../../frame/router.ts";
import { CHARTS, type ChartName, selectedChart, TrafficChart } from "../../parts/traffic-chart.tsx";

export function Numbers() {
  const report = usePoll(trafficOf());
  const total = report?.total;
  const selected = selectedChart();
  const failedShare = total ? shareOf("failed", total) : 0;
  const latency = total && (report.source === "memory" ? total.p95Ms : meanMs(report.points));
  const tiles: Readonly<Record<ChartName, { value: string; note: string; level?: string; title?: string }>> = {
    requests: {
      value: total ? rateText(perSecond(total, report.windowSeconds)) : "…",
      note: total ? `${wholeText(total.requests)} in ${range().title}` : "",
    },
    errors: {
      level: failedShare > 0 ? "bad" : "",
      value: total ? percentText(failedShare) : "…",
      note: total ? `${wholeText(total.failed)} failed, ${wholeText(total.rejected)} rejected` : "",
    },
    latency: {
      value: total ? durationText(latency ?? undefined) : "…",
      note: `${report?.source === "database" ? "mean" : "p95"} of ${range().title}`,
    },
    tokens: { value: total ? shortText(total.tokens) : "…", note: "input and output" },
    cost: { value: total ? dollarText(total.cost) : "…", note: "estimated from prices" },
    mcp: { value: total ? shortText(total.mcpCalls) : "…", note: "to MCP servers" },
  };
  return (
    <section class="glance" aria-label="Traffic">
      <div class="tiles">
        {(Object.keys(CHARTS) as ChartName[]).map((name) => (
          <a
            key={name}
            class={`tile ${tiles[name].level ?? ""}`}
            href={withParams({ chart: name === "requests" ? "" : name })}
            aria-current={name === selected ? "true" : undefined}
          >
            <span class="muted">{CHARTS[name]}</span>
            <strong>{tiles[name].value}</strong>
            <span class="muted small ellipsis">{tiles[name].note}</span>
          </a>
        ))}
      </div>
      <TrafficChart name={selected} />
    </section>
  );
}

function meanMs(points: readonly { requests: number; meanMs?: number | null }[]): number | undefined {
  let requests = 0;
  let sum = 0;
  for (const point of points) {
    requests += point.requests;
    sum += (point.meanMs ?? 0) * point.requests;
  }
  return requests === 0 ? undefined : sum / requests;
}
