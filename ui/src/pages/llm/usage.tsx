/**
 * Shows tokens over time by model, and the usage of recent requests by model, subject, and route.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { history, seriesBy } from "../../data/history.ts";
import { usePoll } from "../../data/poll.ts";
import { type RequestRow, requestList } from "../../data/requests.ts";
import { theme } from "../../frame/theme.ts";
import { visible, wholeText } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { ScrollX } from "../../parts/scroll-x.tsx";
import { Tabs } from "../../parts/tabs.tsx";
import type { DrawChart } from "./chart.ts";
import { COLORS } from "./chart-colors.ts";

type By = "model" | "subject" | "route";

const TOKENS = "gen_ai_client_token_usage_sum";
const MODEL = "gen_ai_response_model";

export function UsagePanel() {
  usePoll(history);
  const rows = usePoll(requestList) ?? [];
  const [by, setBy] = useState<By>("model");
  const used = totals(rows, by);
  return (
    <Panel title="Usage" end={<span class="muted">last 500 requests</span>}>
      <div class="stack">
        <TokenChart />
        <Tabs<By>
          label="Usage by"
          tabs={[
            { name: "model", title: "By model" },
            { name: "subject", title: "By subject or key" },
            { name: "route", title: "By route" },
          ]}
          selected={by}
          onSelect={setBy}
        />
        {used.length === 0 ? (
          <p class="muted">No LLM calls yet. Send a message in the chat.</p>
        ) : (
          <ScrollX>
            <table>
              <thead>
                <tr>
                  <th scope="col">{by}</th>
                  <th scope="col" class="number">
                    calls
                  </th>
                  <th scope="col" class="number">
                    in
                  </th>
                  <th scope="col" class="number">
                    out
                  </th>
                  <th scope="col" class="number">
                    cost
                  </th>
                </tr>
              </thead>
              <tbody>
                {used.map((row) => (
                  <tr key={row.name}>
                    <td class="mono">{row.name === "" ? <span class="muted">none</span> : visible(row.name)}</td>
                    <td class="number">{wholeText(row.calls)}</td>
                    <td class="number">{wholeText(row.input)}</td>
                    <td class="number">{wholeText(row.output)}</td>
                    <td class="number">{row.cost === 0 ? "" : `$${row.cost.toFixed(4)}`}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </ScrollX>
        )}
      </div>
    </Panel>
  );
}

function TokenChart() {
  const place = useRef<HTMLDivElement>(null);
  const draw = useRef<DrawChart | undefined>(undefined);
  const { times, series } = seriesBy(TOKENS, MODEL);
  const total = [...series.values()].flat().reduce((sum, value) => sum + value, 0);
  const chosen = theme.value;
  useEffect(() => {
    if (times.length < 2 || total === 0) return;
    const show = (): void => draw.current?.(times, series);
    if (draw.current) show();
    else
      void import("./chart.ts").then(({ createChart }) => {
        if (!place.current || draw.current) return;
        draw.current = createChart(place.current);
        show();
      });
  }, [times, series, total]);
  // Colors are read when the chart is created, so a new theme requires a new chart.
  useEffect(
    () => () => {
      draw.current = undefined;
      place.current?.replaceChildren();
    },
    [chosen],
  );
  const isShown = times.length >= 2 && total > 0;
  return (
    <figure class="chart-figure">
      {isShown ? <figcaption>Tokens by model, per 2 s, while this page was open (up to 5 minutes)</figcaption> : null}
      <div class="chart" ref={place} role="img" aria-label={`Tokens over the last five minutes: ${wholeText(total)}`} />
      {isShown ? (
        <ul class="legend">
          {[...series].map(([name, values], i) => (
            <li key={name}>
              <span class="swatch" style={{ background: `var(${COLORS[i % COLORS.length]})` }} aria-hidden="true" />
              <span class="mono">{name === "" ? "unknown model" : visible(name)}</span>
              <span class="muted">{wholeText(values.reduce((sum, value) => sum + value, 0))} tokens</span>
            </li>
          ))}
        </ul>
      ) : null}
    </figure>
  );
}

interface Total {
  readonly name: string;
  calls: number;
  input: number;
  output: number;
  cost: number;
}

function totals(rows: readonly RequestRow[], by: By): Total[] {
  const found = new Map<string, Total>();
  for (const { llm, subject, route } of rows) {
    if (!llm) continue;
    const name = (by === "model" ? llm.model : by === "subject" ? subject : route) ?? "";
    const total = found.get(name) ?? { name, calls: 0, input: 0, output: 0, cost: 0 };
    total.calls += 1;
    total.input += llm.inputTokens ?? 0;
    total.output += llm.outputTokens ?? 0;
    total.cost += llm.cost ?? 0;
    found.set(name, total);
  }
  return [...found.values()].sort((a, b) => b.input + b.output - (a.input + a.output));
}
