/**
 * Keeps five minutes of counters per route and backend in the browser, because the gateway only keeps a history of
 * its total traffic. Each sample contains cumulative numbers, so rates and quantiles are differences between two
 * samples.
 */

import { signal } from "@preact/signals";
import { type RequestResult, resultOf } from "../../../src/observe/trace/request-record.ts";
import { getText } from "./api.ts";
import { parseMetrics, type Sample } from "./metrics.ts";
import { createPoll } from "./poll.ts";

const INTERVAL_MS = 2_000;
const WINDOW_MS = 5 * 60_000;
const RATE_WINDOW_MS = 10_000;
/** With hundreds of routes, the metrics are large, so they are read less often. */
const LONG_TEXT_CHARS = 256 * 1024;
const LONG_INTERVAL_MS = 10_000;
const LONG_RATE_WINDOW_MS = 25_000;
/** Quantiles cover minutes, so durations are kept for only one in ten samples. */
const DURATIONS_EVERY = 10;
/** Only these metrics are kept in the history. */
const KEPT_METRICS = new Set(["gateway_requests_total", "gen_ai_client_token_usage_sum"]);

export interface Moment {
  readonly at: number;
  /** Counts requests by listener, route, backend, and pairs of them (see `keyOf`). */
  readonly counts: ReadonlyMap<string, Counts>;
  readonly durations: ReadonlyMap<string, Buckets> | undefined;
  readonly samples: readonly Sample[];
}

interface Counts {
  requests: number;
  errors: number;
  rejections: number;
}

/** Maps upper bounds in seconds to cumulative counts. */
type Buckets = Map<number, number>;

export interface Rate {
  readonly requests: number;
  /** Shares are fractions of the requests, from 0 to 1. */
  readonly errorShare: number;
  readonly rejectedShare: number;
}

const NO_RATE: Rate = { requests: 0, errorShare: 0, rejectedShare: 0 };

const moments = signal<readonly Moment[]>([]);

let isLong = false;
let looks = 0;

export const history = createPoll(
  async () => {
    const text = await getText("metrics");
    isLong = text.length > LONG_TEXT_CHARS;
    const moment = readMoment(Date.now(), parseMetrics(text));
    const last = moments.value.at(-1);
    // Decreased counters mean that the gateway was restarted.
    const isNew = last !== undefined && total(moment) < total(last);
    const kept = isNew ? [] : moments.value.filter(({ at }) => at > moment.at - WINDOW_MS);
    if (last && kept.length > 1 && looks % DURATIONS_EVERY !== 0)
      kept[kept.length - 1] = { ...last, durations: undefined };
    looks += 1;
    moments.value = [...kept, moment];
    return moment;
  },
  () => (isLong ? LONG_INTERVAL_MS : INTERVAL_MS),
);

export const keyOf = {
  listener: (name: string): string => `l\n${name}`,
  route: (name: string): string => `r\n${name}`,
  backend: (name: string): string => `b\n${name}`,
  intoRoute: (listener: string, route: string): string => `lr\n${listener}\n${route}`,
  intoBackend: (route: string, backend: string): string => `rb\n${route}\n${backend}`,
};

/** The rate covers the last 10 s, or 25 s with large metrics. */
export function rateOf(key: string): Rate {
  const last = moments.value.at(-1);
  const windowMs = isLong ? LONG_RATE_WINDOW_MS : RATE_WINDOW_MS;
  const first = last && moments.value.find(({ at }) => at >= last.at - windowMs);
  if (!last || !first || first === last) return NO_RATE;
  const now = last.counts.get(key);
  if (!now) return NO_RATE;
  const before = first.counts.get(key) ?? { requests: 0, errors: 0, rejections: 0 };
  const requests = now.requests - before.requests;
  return {
    requests: (requests * 1000) / (last.at - first.at),
    errorShare: requests === 0 ? 0 : (now.errors - before.errors) / requests,
    rejectedShare: requests === 0 ? 0 : (now.rejections - before.rejections) / requests,
  };
}

export function countOf(key: string): number {
  return moments.peek().at(-1)?.counts.get(key)?.requests ?? 0;
}

/** Returns requests per second between samples, oldest first. */
export function sparkOf(key: string): number[] {
  const list = moments.value;
  const rates: number[] = [];
  for (let i = 1; i < list.length; i++) {
    const [from, to] = [list[i - 1], list[i]];
    if (!from || !to) continue;
    const difference = (to.counts.get(key)?.requests ?? 0) - (from.counts.get(key)?.requests ?? 0);
    rates.push(Math.max(0, (difference * 1000) / (to.at - from.at)));
  }
  return rates;
}

/** Returns the 95th percentile in seconds, interpolated within its bucket. Undefined if there were no requests. */
export function p95Of(key: string): number | undefined {
  const last = moments.value.at(-1);
  const first = moments.value.find(({ durations }) => durations !== undefined);
  const now = last?.durations?.get(key);
  if (!now) return undefined;
  const before = first === last ? undefined : first?.durations?.get(key);
  const bounds = [...now.keys()].sort((a, b) => a - b);
  const countAt = (bound: number): number => (now.get(bound) ?? 0) - (before?.get(bound) ?? 0);
  const all = countAt(Number.POSITIVE_INFINITY);
  if (all <= 0) return undefined;
  const wanted = all * 0.95;
  let lower = 0;
  let below = 0;
  for (const bound of bounds) {
    const count = countAt(bound);
    if (count >= wanted) {
      if (bound === Number.POSITIVE_INFINITY) return lower;
      return count === below ? bound : lower + ((bound - lower) * (wanted - below)) / (count - below);
    }
    lower = bound;
    below = count;
  }
  return lower;
}

/** Returns the growth of a counter over the window, summed by one label. */
export function growthBy(
  name: string,
  label: string,
  test: (labels: Sample["labels"]) => boolean = () => true,
): Map<string, number> {
  const last = moments.value.at(-1);
  const first = moments.value[0];
  const sums = new Map<string, number>();
  const addAll = (moment: Moment | undefined, sign: number): void => {
    for (const sample of moment?.samples ?? []) {
      if (sample.name !== name || !test(sample.labels)) continue;
      const key = sample.labels[label] ?? "";
      sums.set(key, (sums.get(key) ?? 0) + sign * sample.value);
    }
  };
  if (first === last) return sums;
  addAll(last, 1);
  addAll(first, -1);
  return sums;
}

/** Returns the growth of a counter between samples, by one label. */
export function seriesBy(name: string, label: string): { times: number[]; series: Map<string, number[]> } {
  const list = moments.value;
  const times: number[] = [];
  const series = new Map<string, number[]>();
  for (let i = 1; i < list.length; i++) {
    const [from, to] = [list[i - 1], list[i]];
    if (!from || !to) continue;
    const values = new Map<string, number>();
    for (const sample of to.samples) if (sample.name === name) add(values, sample.labels[label] ?? "", sample.value);
    for (const sample of from.samples) if (sample.name === name) add(values, sample.labels[label] ?? "", -sample.value);
    times.push(to.at / 1000);
    for (const [key, value] of values) {
      const row = series.get(key) ?? new Array<number>(times.length - 1).fill(0);
      row.push(value);
      series.set(key, row);
    }
    for (const row of series.values()) if (row.length < times.length) row.push(0);
  }
  return { times, series };
}

function add(map: Map<string, number>, key: string, value: number): void {
  map.set(key, (map.get(key) ?? 0) + value);
}

/**
 * The labels of `gateway_requests_total` do not contain the source of an error, so errors below 500 count as rejected.
 */
export function resultOfLabels({ status = "", error = "" }: Sample["labels"]): RequestResult {
  return resultOf({
    status: status === "" ? null : Number(status),
    end: "complete",
    failure: error === "" ? undefined : { source: "client" },
  });
}

function readMoment(at: number, list: readonly Sample[]): Moment {
  const counts = new Map<string, Counts>();
  const durations = new Map<string, Buckets>();
  for (const { name, labels, value } of list) {
    const { gateway = "", route = "", backend = "" } = labels;
    if (name === "gateway_requests_total") {
      const result = resultOfLabels(labels);
      const outcome = result === "failed" ? "errors" : result === "rejected" ? "rejections" : undefined;
      const keys = [keyOf.listener(gateway)];
      if (route !== "") keys.push(keyOf.route(route), keyOf.intoRoute(gateway, route));
      if (backend !== "") keys.push(keyOf.backend(backend), keyOf.intoBackend(route, backend));
      for (const key of keys) count(counts, key, value, outcome);
    } else if (name === "gateway_request_duration_seconds_bucket") {
      const bound = labels.le === "+Inf" ? Number.POSITIVE_INFINITY : Number(labels.le);
      for (const key of [keyOf.listener(gateway), keyOf.route(route)]) {
        const buckets = durations.get(key) ?? new Map<number, number>();
        buckets.set(bound, (buckets.get(bound) ?? 0) + value);
        durations.set(key, buckets);
      }
    }
  }
  return { at, counts, durations, samples: list.filter(({ name }) => KEPT_METRICS.has(name)) };
}

function count(
  counts: Map<string, Counts>,
  key: string,
  value: number,
  outcome: "errors" | "rejections" | undefined,
): void {
  const known = counts.get(key) ?? { requests: 0, errors: 0, rejections: 0 };
  known.requests += value;
  if (outcome) known[outcome] += value;
  counts.set(key, known);
}

function total({ counts }: Moment): number {
  let sum = 0;
  for (const [key, { requests }] of counts) if (key.startsWith("l\n")) sum += requests;
  return sum;
}
