/**
 * Draws a waterfall chart with one row per phase and one bar per policy or call.
 */
import { durationText } from "../../../../src/base/format.ts";
import { visible } from "../../parts/format.ts";
import type { Level } from "../../parts/status.tsx";

export type Lane = "gateway" | "route" | "backend" | "response";

export interface Bar {
  readonly lane: Lane;
  readonly label: string;
  readonly startMicros: number;
  readonly endMicros: number;
  readonly level: Level;
  readonly isPoint: boolean;
  readonly isCall?: boolean;
}

const LANES: readonly Lane[] = ["gateway", "route", "backend", "response"];

export function Waterfall({
  bars,
  selected,
  onSelect,
}: {
  bars: readonly Bar[];
  selected?: number;
  onSelect?: (index: number) => void;
}) {
  const end = Math.max(...bars.map(({ endMicros }) => endMicros), 1);
  return (
    <div class="waterfall">
      {LANES.map((lane) => {
        const inLane = bars.map((bar, index) => ({ bar, index })).filter(({ bar }) => bar.lane === lane);
        if (inLane.length === 0) return null;
        return (
          <div class="bar-row" key={lane}>
            <div class="lane">{lane}</div>
            {inLane.map(({ bar, index }) => (
              <Row
                key={index}
                bar={bar}
                end={end}
                isSelected={index === selected}
                onSelect={onSelect && (() => onSelect(index))}
              />
            ))}
          </div>
        );
      })}
    </div>
  );
}

function Row({
  bar,
  end,
  isSelected,
  onSelect,
}: {
  bar: Bar;
  end: number;
  isSelected: boolean;
  onSelect: (() => void) | undefined;
}) {
  const left = `${(bar.startMicros / end) * 100}%`;
  const width = `${((bar.endMicros - bar.startMicros) / end) * 100}%`;
  const kind = `bar ${bar.level}${bar.isCall ? " backend" : ""}`;
  return (
    <div class="bar-row">
      {onSelect ? (
        <button
          type="button"
          class="ellipsis"
          aria-current={isSelected ? "true" : undefined}
          onClick={onSelect}
          title={visible(bar.label)}
        >
          {visible(bar.label)}
        </button>
      ) : (
        <span class="ellipsis" title={visible(bar.label)}>
          {visible(bar.label)}
        </span>
      )}
      <div class="track" aria-hidden="true">
        <span class={bar.isPoint ? `${kind} point` : kind} style={bar.isPoint ? { left } : { left, width }} />
      </div>
      <span class="number muted">
        {bar.isPoint
          ? `+${durationText(bar.endMicros / 1000)}`
          : durationText((bar.endMicros - bar.startMicros) / 1000)}
      </span>
    </div>
  );
}
