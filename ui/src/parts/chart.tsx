/**
 * A chart of series over time, drawn as SVG: stacked bars or lines, a value axis, a time axis, and the values at the
 * pointer. The arrow keys move through the values.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { type ChartSeries, ticksOf, timeText, timeTicks } from "./chart-scale.ts";
import { visible } from "./format.ts";

export interface ChartProps {
  readonly title: string;
  /** Milliseconds since the epoch, oldest first. */
  readonly times: readonly number[];
  readonly slotSeconds: number;
  readonly series: readonly ChartSeries[];
  readonly kind: "bars" | "lines";
  readonly format: (value: number) => string;
  /** The values are counts, so the axis has no fractions. */
  readonly isCount?: boolean;
  readonly height?: number;
}

const LEFT = 56;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const LABEL_WIDTH = 96;

export function Chart({ title, times, slotSeconds, series, kind, format, isCount = false, height = 180 }: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState<number | undefined>(undefined);
  useEffect(() => {
    if (!frame.current) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  const inner = { width: Math.max(1, width - LEFT - RIGHT), height: height - TOP - BOTTOM };
  const ticks = ticksOf(largest(series, kind, times.length), isCount);
  const top = ticks.at(-1) ?? 1;
  const step = inner.width / Math.max(1, times.length);
  const x = (i: number): number => LEFT + (i + 0.5) * step;
  const y = (value: number): number => TOP + inner.height * (1 - value / top);
  const last = times.length - 1;
  const shown = at === undefined ? undefined : Math.min(at, last);
  const move = (by: number): void => setAt(Math.min(last, Math.max(0, (shown ?? last + 1) + by)));
  return (
    <figure class="chart">
      <div
        class="plot"
        ref={frame}
        role="slider"
        tabIndex={0}
        aria-label={`${title}. ${summary(series, format)}`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, last)}
        aria-valuenow={shown ?? Math.max(0, last)}
        aria-valuetext={valuesAt(shown ?? last, times, slotSeconds, series, format)}
        style={{ height: `${height}px` }}
        onPointerMove={({ offsetX }) => setAt(Math.min(last, Math.max(0, Math.floor((offsetX - LEFT) / step))))}
        onPointerLeave={() => setAt(undefined)}
        onBlur={() => setAt(undefined)}
        onKeyDown={(event) => {
          if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
          event.preventDefault();
          move(event.key === "ArrowLeft" ? -1 : 1);
        }}
      >
        {width === 0 ? null : (
          <svg width={width} height={height} aria-hidden="true">
            {ticks.map((tick) => (
              <g key={tick}>
                <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
                <text class="axis" x={LEFT - 8} y={y(tick) + 4} text-anchor="end">
                  {format(tick)}
                </text>
              </g>
            ))}
            {timeTicks(times, slotSeconds, Math.max(2, Math.floor(inner.width / LABEL_WIDTH))).map(
              ({ index, text }) => (
                <text key={index} class="axis" x={x(index)} y={height - 5} text-anchor={anchorOf(x(index), width)}>
                  {text}
                </text>
              ),
            )}
            {shown === undefined ? null : (
              <rect class="pointer" x={LEFT + shown * step} y={TOP} width={Math.max(1, step)} height={inner.height} />
            )}
            {kind === "bars" ? (
              <Bars series={series} count={times.length} x={x} y={y} step={step} />
            ) : (
              series.map((one) => <Line key={one.name} series={one} x={x} y={y} />)
            )}
          </svg>
        )}
        {shown === undefined ? null : (
          <div class={x(shown) > width / 2 ? "values left" : "values"} style={{ left: `${x(shown)}px` }}>
            <span class="muted">{timeText(times[shown] ?? 0, slotSeconds, true)}</span>
            {series.map(({ name, color, values }) => (
              <span key={name} class="value">
                <span class="swatch" style={{ background: `var(${color})` }} />
                <span class="ellipsis">{visible(name)}</span>
                <span class="number">{valueText(values[shown], format)}</span>
              </span>
            ))}
          </div>
        )}
      </div>
      {series.length < 2 ? null : (
        <figcaption class="legend">
          {series.map(({ name, color }) => (
            <span key={name}>
              <span class="swatch" style={{ background: `var(${color})` }} aria-hidden="true" /> {visible(name)}
            </span>
          ))}
        </figcaption>
      )}
    </figure>
  );
}

interface Scale {
  readonly x: (index: number) => number;
  readonly y: (value: number) => number;
}

function Bars({ series, count, x, y, step }: Scale & { series: readonly ChartSeries[]; count: number; step: number }) {
  const width = Math.max(1, step - (step > 4 ? 1 : 0));
  const below = new Array<number>(count).fill(0);
  return (
    <>
      {series.map(({ name, color, values }) => {
        // One path for each series keeps the number of elements small.
        let path = "";
        for (const [i, value] of values.entries()) {
          if (!value) continue;
          const from = below[i] ?? 0;
          below[i] = from + value;
          path += `M${x(i) - width / 2},${y(from)}V${y(from + value)}h${width}V${y(from)}z`;
        }
        return <path key={name} d={path} style={{ fill: `var(${color})` }} />;
      })}
    </>
  );
}

function Line({ series: { values, color }, x, y }: Scale & { series: ChartSeries }) {
  let path = "";
  const alone: number[] = [];
  for (const [i, value] of values.entries()) {
    if (value === null) continue;
    const isStart = (values[i - 1] ?? null) === null;
    path += `${isStart ? "M" : "L"}${x(i).toFixed(1)},${y(value).toFixed(1)}`;
    if (isStart && (values[i + 1] ?? null) === null) alone.push(i);
  }
  return (
    <>
      <path class="line" d={path} style={{ stroke: `var(${color})` }} />
      {alone.map((i) => (
        <circle key={i} cx={x(i)} cy={y(values[i] ?? 0)} r="2" style={{ fill: `var(${color})` }} />
      ))}
    </>
  );
}

function largest(series: readonly ChartSeries[], kind: ChartProps["kind"], count: number): number {
  let max = 0;
  for (let i = 0; i < count; i++) {
    const values = series.map(({ values: list }) => list[i] ?? 0);
    max = Math.max(max, kind === "bars" ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values, 0));
  }
  return max;
}

function summary(series: readonly ChartSeries[], format: ChartProps["format"]): string {
  return series
    .map(({ name, values }) => {
      const known = values.filter((value): value is number => value !== null);
      return `${name}: ${known.length === 0 ? "no data" : `up to ${format(Math.max(...known))}`}`;
    })
    .join("; ");
}

function valuesAt(
  index: number,
  times: readonly number[],
  slotSeconds: number,
  series: readonly ChartSeries[],
  format: ChartProps["format"],
): string {
  const values = series.map(({ name, values: list }) => `${name} ${valueText(list[index], format)}`).join(", ");
  return `${timeText(times[index] ?? 0, slotSeconds, true)}: ${values}`;
}

function valueText(value: number | null | undefined, format: ChartProps["format"]): string {
  return value === null || value === undefined ? "–" : format(value);
}

/** Labels at the edges must not be cut off. */
function anchorOf(x: number, width: number): "start" | "middle" | "end" {
  if (x < LEFT + LABEL_WIDTH / 3) return "start";
  return x > width - LABEL_WIDTH / 3 ? "end" : "middle";
}
