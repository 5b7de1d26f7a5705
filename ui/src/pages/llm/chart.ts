/**
 * Draws a chart of several series over time. It is imported only if there is data, because the chart library is
 * large.
 */
import UPlot from "uplot";
import { COLORS } from "./chart-colors.ts";

export type DrawChart = (times: readonly number[], series: ReadonlyMap<string, readonly number[]>) => void;

const HEIGHT = 140;

export function createChart(place: HTMLElement): DrawChart {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--muted"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1 },
  };
  let chart: UPlot | undefined;
  let shownNames = "";
  return (times, series) => {
    const names = [...series.keys()].join("\n");
    const data: UPlot.AlignedData = [[...times], ...[...series.values()].map((values) => [...values])];
    if (chart && names === shownNames) {
      chart.setData(data);
      return;
    }
    chart?.destroy();
    shownNames = names;
    chart = new UPlot(
      {
        width: place.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        axes: [axis, { ...axis, size: 56 }],
        series: [
          {},
          ...[...series.keys()].map((label, i) => ({
            label,
            stroke: color(COLORS[i % COLORS.length] ?? "--accent"),
            width: 1.5,
            points: { show: false },
          })),
        ],
      },
      data,
      place,
    );
  };
}
