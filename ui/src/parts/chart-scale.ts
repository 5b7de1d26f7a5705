/**
 * Computes the ticks of chart axes.
 */
export interface ChartSeries {
  readonly name: string;
  /** The name of a CSS variable. */
  readonly color: string;
  /** A value is null if there was no data. */
  readonly values: readonly (number | null)[];
}

const TICKS = 4;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_SECONDS = 86_400;

/** Returns round values from 0 to at least `max`. With `isCount`, they are whole numbers. */
export function ticksOf(max: number, isCount = false): number[] {
  if (!(max > 0)) return [0, 1];
  const rough = isCount ? Math.max(1, max / TICKS) : max / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 2.5, 5, 10].map((factor) => factor * power).filter((step) => !isCount || Number.isInteger(step));
  const step = steps.find((one) => one >= rough * (1 - 1e-9)) ?? 10 * power;
  const ticks: number[] = [];
  for (let i = 0; ; i++) {
    // Multiplication has smaller rounding errors than repeated addition.
    const tick = Number((i * step).toPrecision(12));
    ticks.push(tick);
    if (tick >= max * (1 - 1e-9)) return ticks;
  }
}

export interface TimeTick {
  readonly index: number;
  readonly text: string;
}

/** The distances between labels, in seconds. */
const INTERVALS = [
  10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 604_800,
];

/** Returns at most `count` labels at round times. */
export function timeTicks(times: readonly number[], slotSeconds: number, count: number): TimeTick[] {
  const [first = 0] = times;
  const length = ((times.at(-1) ?? 0) - first) / 1000 + slotSeconds;
  const interval = INTERVALS.find((seconds) => seconds >= slotSeconds && length / seconds <= count) ?? length;
  const isUtc = slotSeconds >= DAY_SECONDS;
  return times.flatMap((at, index) => {
    const local = at - (isUtc ? 0 : new Date(at).getTimezoneOffset() * 60_000);
    return local % (interval * 1000) === 0 ? [{ index, text: timeText(at, slotSeconds, false) }] : [];
  });
}

/** Days of the history database are in UTC. Times of day are local. */
export function timeText(at: number, slotSeconds: number, isLong: boolean): string {
  const date = new Date(at);
  if (slotSeconds >= DAY_SECONDS) return `${MONTHS[date.getUTCMonth()]} ${date.getUTCDate()}`;
  const two = (value: number): string => String(value).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  const day = `${MONTHS[date.getMonth()]} ${date.getDate()}`;
  if (slotSeconds >= 3_600) return isLong ? `${day}, ${time}` : time === "00:00" ? day : time;
  return isLong ? `${day}, ${time}${slotSeconds < 60 ? `:${two(date.getSeconds())}` : ""}` : time;
}
