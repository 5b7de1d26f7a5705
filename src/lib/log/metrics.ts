/**
 * Counters, gauges and histograms in the Prometheus text format. A series is looked up once and then kept by
 * whoever counts (at configuration load, or on the first request of its kind), so that counting is one addition.
 */

export interface Counter {
  add(amount?: number): void;
  readonly value: number;
}

export interface Histogram {
  observe(value: number): void;
}

export interface Family<Series> {
  /** The series with these label values, in the order of the family's label names. */
  labels(...values: string[]): Series;
}

export interface Metrics {
  counter(name: string, help: string, labelNames?: readonly string[]): Family<Counter>;
  histogram(name: string, help: string, buckets: readonly number[], labelNames?: readonly string[]): Family<Histogram>;
  /** Read when scraped, so that it costs nothing otherwise. */
  gauge(
    name: string,
    help: string,
    read: () => number | Iterable<readonly [labels: Record<string, string>, value: number]>,
  ): void;
  render(): string;
}

/** A scrape must stay bounded even if a label's values come from traffic: beyond this, one series takes the rest. */
const MAX_SERIES = 10_000;
const OVERFLOW = "other";

export const DURATION_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 80];

export function createMetrics(): Metrics {
  const families = new Map<
    string,
    { render(): string; family?: Family<never> | Family<Counter> | Family<Histogram> }
  >();

  function once<F>(name: string, create: () => { family: F; render(): string }): F {
    const known = families.get(name);
    if (known?.family) return known.family as F;
    const made = create();
    families.set(name, made as { render(): string; family: never });
    return made.family;
  }

  return {
    counter: (name, help, labelNames = []) =>
      once(name, () => {
        const series = new Map<string, Counter & { value: number }>();
        const family = seriesOf(series, labelNames, () => ({
          value: 0,
          add(amount = 1) {
            this.value += amount;
          },
        }));
        return {
          family,
          render: () =>
            head(name, help, "counter") + lines(series, (labels, one) => `${name}${braces(labels)} ${one.value}\n`),
        };
      }),

    histogram: (name, help, buckets, labelNames = []) =>
      once(name, () => {
        const series = new Map<string, HistogramSeries>();
        const family = seriesOf(series, labelNames, () => createHistogram(buckets));
        return {
          family,
          render: () => head(name, help, "histogram") + lines(series, (labels, one) => one.render(name, labels)),
        };
      }),

    gauge(name, help, read) {
      families.set(name, {
        render: () => {
          const value = read();
          const rows = typeof value === "number" ? [[{}, value] as const] : [...value];
          return (
            head(name, help, "gauge") +
            rows.map(([labels, number]) => `${name}${braces(labelText(labels))} ${number}\n`).join("")
          );
        },
      });
    },

    render: () => [...families.values()].map((family) => family.render()).join(""),
  };
}

interface HistogramSeries extends Histogram {
  render(name: string, labels: string): string;
}

function createHistogram(buckets: readonly number[]): HistogramSeries {
  const counts = new Float64Array(buckets.length + 1);
  let sum = 0;
  return {
    observe(value) {
      sum += value;
      let i = 0;
      while (i < buckets.length && value > (buckets[i] as number)) i += 1;
      counts[i] = (counts[i] as number) + 1;
    },
    render(name, labels) {
      const prefix = labels === "" ? "" : `${labels},`;
      let text = "";
      let total = 0;
      for (let i = 0; i <= buckets.length; i++) {
        total += counts[i] as number;
        text += `${name}_bucket{${prefix}le="${i < buckets.length ? buckets[i] : "+Inf"}"} ${total}\n`;
      }
      return `${text}${name}_sum${braces(labels)} ${sum}\n${name}_count${braces(labels)} ${total}\n`;
    },
  };
}

function seriesOf<Series>(known: Map<string, Series>, names: readonly string[], create: () => Series): Family<Series> {
  return {
    labels(...values) {
      const key = names.map((name, i) => `${name}="${escapeLabel(values[i] ?? "")}"`).join(",");
      const found = known.get(key);
      if (found) return found;
      const room = known.size < MAX_SERIES;
      const keptKey = room ? key : names.map((name) => `${name}="${OVERFLOW}"`).join(",");
      const series = known.get(keptKey) ?? create();
      known.set(keptKey, series);
      return series;
    },
  };
}

function lines<Series>(series: Map<string, Series>, line: (labels: string, one: Series) => string): string {
  let text = "";
  for (const [labels, one] of series) text += line(labels, one);
  return text;
}

function labelText(labels: Record<string, string>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escapeLabel(value)}"`)
    .join(",");
}

function head(name: string, help: string, type: string): string {
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
}

function braces(labels: string): string {
  return labels === "" ? "" : `{${labels}}`;
}

function escapeLabel(value: string): string {
  return value.replace(/[\\"\n]/g, (char) => (char === "\n" ? "\\n" : `\\${char}`));
}
