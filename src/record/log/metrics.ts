/**
 * Implements counters, gauges, histograms, and summaries in the Prometheus text format, and adds up those of several threads.
 */

export interface Counter {
  add(amount?: number): void;
  readonly value: number;
}

export interface Histogram {
  observe(value: number): void;
}

export interface Family<Series> {
  /** The values are in the order of the family's label names. */
  labels(...values: string[]): Series;
}

export interface Metrics {
  counter(name: string, help: string, labelNames?: readonly string[]): Family<Counter>;
  histogram(name: string, help: string, buckets: readonly number[], labelNames?: readonly string[]): Family<Histogram>;
  /** The value is read when the metrics are rendered or collected. */
  gauge(name: string, help: string, read: ReadRows): void;
  /** Registers values by quantile. Prometheus allows the label `quantile` only in summaries, not in gauges. */
  summary(
    name: string,
    help: string,
    read: () => Iterable<readonly [labels: { quantile: string; thread: string }, value: number]>,
  ): void;
  /** Registers a counter that is maintained elsewhere and read when the metrics are rendered or collected. */
  total(name: string, help: string, read: () => number): void;
  render(): string;
  collect(): MetricFamily[];
}

type MetricRow = readonly [labels: Record<string, string>, value: number];
type ReadRows = () => number | Iterable<MetricRow>;

export interface MetricFamily {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram" | "summary";
  readonly points: readonly MetricPoint[];
}

export interface MetricPoint {
  readonly labels: Readonly<Record<string, string>>;
  /** For a histogram, the value is the sum of all observed values. */
  readonly value: number;
  /** Only histograms have buckets. The last count is for values above all bounds. */
  readonly buckets?: { readonly bounds: readonly number[]; readonly counts: readonly number[] };
}

/**
 * Label values may come from traffic, so the number of series per family is bounded. Beyond this number, one series
 * counts all other label values.
 */
const MAX_SERIES = 10_000;
/** A longer label value is replaced by `other`, because each series keeps its values for the life of the process. */
const MAX_LABEL_CHARS = 512;
const OVERFLOW = "other";

/** The length of a label value that a client, server, or provider chooses. */
const MAX_CHOSEN_LABEL_CHARS = 200;

/**
 * Returns a function for label values that a client, server, or provider chooses. The registered values and the first
 * `most` others keep their own label. Later and longer values share `other`.
 */
export function boundedLabel(most: number, registered: readonly string[] = []): (value: string) => string {
  const known = new Set(registered);
  return (value) => {
    if (known.has(value)) return value;
    if (known.size >= registered.length + most || value.length > MAX_CHOSEN_LABEL_CHARS) return OVERFLOW;
    known.add(value);
    return value;
  };
}

export const DURATION_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 80];

export function createMetrics(): Metrics {
  const families = new Map<string, Registered & { family?: Family<never> | Family<Counter> | Family<Histogram> }>();

  function once<F>(name: string, create: () => Registered & { family: F }): F {
    const known = families.get(name);
    if (known?.family) return known.family as F;
    const made = create();
    families.set(name, made as Registered & { family: never });
    return made.family;
  }

  function registerRows(name: string, help: string, type: MetricFamily["type"], read: ReadRows): void {
    families.set(name, {
      collect() {
        const value = read();
        const rows: Iterable<MetricRow> = typeof value === "number" ? [[{}, value]] : value;
        return { name, help, type, points: Array.from(rows, ([labels, value]) => ({ labels, value })) };
      },
    });
  }

  const collect = (): MetricFamily[] => [...families.values()].map((family) => family.collect());
  return {
    counter: (name, help, labelNames = []) =>
      once(name, () => {
        const series: KnownSeries<Counter & { value: number }>[] = [];
        const family = createFamily(series, labelNames, () => ({
          value: 0,
          add(amount = 1) {
            this.value += amount;
          },
        }));
        return {
          family,
          collect: () => ({ name, help, type: "counter", points: points(series, ({ value }) => ({ value })) }),
        };
      }),

    histogram: (name, help, buckets, labelNames = []) =>
      once(name, () => {
        const series: KnownSeries<HistogramSeries>[] = [];
        const family = createFamily(series, labelNames, () => createHistogram(buckets));
        return {
          family,
          collect: () => ({ name, help, type: "histogram", points: points(series, (one) => one.collect()) }),
        };
      }),

    gauge: (name, help, read) => registerRows(name, help, "gauge", read),
    summary: (name, help, read) => registerRows(name, help, "summary", read),

    total: (name, help, read) => registerRows(name, help, "counter", read),

    render: () => renderFamilies(collect()),
    collect,
  };
}

/** Writes the families in the Prometheus text format. */
export function renderFamilies(families: readonly MetricFamily[]): string {
  let text = "";
  for (const { name, help, type, points } of families) {
    text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    for (const point of points) text += pointLines(name, point);
  }
  return text;
}

function pointLines(name: string, { labels, value, buckets }: MetricPoint): string {
  const written = labelText(labels);
  if (buckets === undefined) return `${name}${braces(written)} ${value}\n`;
  const prefix = written === "" ? "" : `${written},`;
  let text = "";
  let total = 0;
  for (const [i, count] of buckets.counts.entries()) {
    total += count;
    text += `${name}_bucket{${prefix}le="${buckets.bounds[i] ?? "+Inf"}"} ${total}\n`;
  }
  return `${text}${name}_sum${braces(written)} ${value}\n${name}_count${braces(written)} ${total}\n`;
}

interface Registered {
  collect(): MetricFamily;
}

interface KnownSeries<Series> {
  readonly labels: Readonly<Record<string, string>>;
  readonly series: Series;
}

interface HistogramSeries extends Histogram {
  collect(): Pick<MetricPoint, "value" | "buckets">;
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
    collect: () => ({ value: sum, buckets: { bounds: buckets, counts: [...counts] } }),
  };
}

/** Maps label values to series in a tree, so that a lookup builds no key. */
interface LabelNode<Series> {
  series: Series | undefined;
  readonly next: Map<string, LabelNode<Series>>;
}

function createFamily<Series>(
  known: KnownSeries<Series>[],
  names: readonly string[],
  create: () => Series,
): Family<Series> {
  const root: LabelNode<Series> = { series: undefined, next: new Map() };

  function find(values: readonly string[]): Series | undefined {
    let node: LabelNode<Series> | undefined = root;
    for (let i = 0; i < names.length && node !== undefined; i++) node = node.next.get(values[i] ?? "");
    return node?.series;
  }

  function findOrAdd(given: readonly string[]): Series {
    const short = given.map((value) => (value.length > MAX_LABEL_CHARS ? OVERFLOW : value));
    const found = find(short);
    if (found !== undefined) return found;
    const isFull = known.length >= MAX_SERIES;
    const values = names.map((_, i) => (isFull ? OVERFLOW : (short[i] ?? "")));
    let node = root;
    for (const value of values) {
      const next: LabelNode<Series> = node.next.get(value) ?? { series: undefined, next: new Map() };
      node.next.set(value, next);
      node = next;
    }
    if (node.series === undefined) {
      node.series = create();
      known.push({ labels: Object.fromEntries(names.map((name, i) => [name, values[i] ?? ""])), series: node.series });
    }
    return node.series;
  }

  return { labels: (...values) => find(values) ?? findOrAdd(values) };
}

function points<Series>(
  known: readonly KnownSeries<Series>[],
  read: (one: Series) => Omit<MetricPoint, "labels">,
): MetricPoint[] {
  return known.map(({ labels, series }) => ({ labels, ...read(series) }));
}

function labelText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escapeLabel(value)}"`)
    .join(",");
}

function braces(labels: string): string {
  return labels === "" ? "" : `{${labels}}`;
}

function escapeLabel(value: string): string {
  return value.replace(/[\\"\n]/g, (char) => (char === "\n" ? "\\n" : `\\${char}`));
}

export function mergeFamilies(lists: readonly (readonly MetricFamily[])[]): MetricFamily[] {
  const families = new Map<string, { readonly family: MetricFamily; readonly points: Map<string, MetricPoint> }>();
  for (const family of lists.flat()) {
    const merged = families.get(family.name) ?? { family, points: new Map<string, MetricPoint>() };
    families.set(family.name, merged);
    for (const point of family.points) {
      const key = JSON.stringify(Object.entries(point.labels));
      const known = merged.points.get(key);
      merged.points.set(key, known === undefined ? point : sum(known, point));
    }
  }
  return [...families.values()].map(({ family, points }) => ({ ...family, points: [...points.values()] }));
}

/** Returns the families whose sums must not decrease, so that they stay when a thread ends. */
export function cumulativeFamilies(families: readonly MetricFamily[]): MetricFamily[] {
  return families.filter(({ type }) => type === "counter" || type === "histogram");
}

function sum(one: MetricPoint, other: MetricPoint): MetricPoint {
  const value = one.value + other.value;
  if (one.buckets === undefined) return { labels: one.labels, value };
  const { bounds, counts } = one.buckets;
  const added = counts.map((count, i) => count + (other.buckets?.counts[i] ?? 0));
  return { labels: one.labels, value, buckets: { bounds, counts: added } };
}
