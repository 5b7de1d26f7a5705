/**
 * Shows six key numbers, most with their trend over the selected range.
 */
import { useEffect } from "preact/hooks";
import { usePoll } from "../../data/poll.ts";
import { tasks, tasksOfKind } from "../../data/tasks.ts";
import { RANGES, rangeSeconds, traffic } from "../../data/traffic.ts";
import { param, setParams } from "../../frame/router.ts";
import { durationText, percentText, rateText, wholeText } from "../../parts/format.ts";
import { Sparkline } from "../../parts/sparkline.tsx";

export function Numbers() {
  const report = usePoll(traffic);
  const seconds = rangeSeconds();
  useEffect(() => void traffic.refresh(), [seconds]);
  const total = report?.total;
  const points = report?.points ?? [];
  const covered = Math.max(1, points.length * (report?.slotSeconds ?? 1));
  const sessions = tasksOfKind(tasks.value.value?.tasks ?? [], ({ kind }) => kind.includes("session")).length;
  const failedShare = total && total.requests > 0 ? total.failed / total.requests : 0;
  return (
    <section class="glance" aria-label="Traffic at a glance">
      <Tile
        title="Requests"
        value={total ? rateText(total.requests / covered) : "…"}
        note={total ? `${wholeText(total.requests)} in total` : ""}
        values={points.map(({ requests }) => requests)}
      />
      <Tile
        title="Errors"
        level={failedShare > 0 ? "bad" : ""}
        value={total ? percentText(failedShare) : "…"}
        note={total ? `${wholeText(total.failed)} failed, ${wholeText(total.rejected)} rejected` : ""}
        values={points.map(({ failed }) => failed)}
      />
      <Tile
        title="p95"
        value={total ? (total.p95Ms === null ? "–" : durationText(total.p95Ms)) : "…"}
        note="95% of requests are faster"
        values={points.map(({ p95Ms }) => p95Ms ?? 0)}
      />
      <Tile
        title="Tokens"
        value={total ? wholeText(total.tokens) : "…"}
        note="input and output"
        values={points.map(({ tokens }) => tokens)}
      />
      <Tile
        title="Cost"
        value={total ? `$${total.cost.toFixed(total.cost < 1 ? 4 : 2)}` : "…"}
        note="from the prices in the configuration"
        values={points.map(({ cost }) => cost)}
      />
      <Tile title="MCP sessions" value={wholeText(sessions)} note="open now" values={[]} />
    </section>
  );
}

export function RangeChoice() {
  return (
    <label class="range">
      <span class="muted">Range</span>
      <select
        class="input"
        value={param("range")}
        onChange={(event) => setParams({ range: event.currentTarget.value }, { replace: true })}
      >
        {RANGES.map(({ name, title }) => (
          <option key={name} value={name}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

function Tile(props: {
  readonly title: string;
  readonly value: string;
  readonly note: string;
  readonly values: readonly number[];
  readonly level?: string;
}) {
  const { title, value, note, values, level = "" } = props;
  return (
    <div class={`tile ${level}`}>
      <span class="muted">{title}</span>
      <strong>{value}</strong>
      {values.length > 1 ? <Sparkline values={values} width={96} height={20} /> : null}
      <span class="muted small">{note}</span>
    </div>
  );
}
