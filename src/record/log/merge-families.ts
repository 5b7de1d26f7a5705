/**
 * Adds up the metrics of several threads. Points of the same family with the same labels become one point.
 */
import type { MetricFamily, MetricPoint } from "./metrics.ts";

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
