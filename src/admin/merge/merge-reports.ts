/**
 * Merges the reports of worker threads: requests by sequence number, tasks by name, memory in total and per thread,
 * run-time counts of backends, and traffic history by time slot.
 */
import { defined } from "../../json/json.ts";
import { mergeServerStates, type ServerState } from "../../mcp/server-side/server-state.ts";
import {
  type HistoryPoint,
  type HistoryReport,
  sumOfTraffic,
  type TrafficRow,
  type TrafficRows,
  type TrafficWindow,
} from "../../record/trace/traffic-numbers.ts";

type Json = Readonly<Record<string, unknown>>;

/** These numbers identify or configure something, so they must not be added. */
const NAMES = new Set(["port", "pid", "thread", "limit", "capacity", "weight"]);

export function mergeRequests(reports: readonly Json[], limit: number): Json {
  const [first = {}] = reports;
  const requests = reports
    .flatMap((report) => asList(report.requests))
    .sort((a, b) => Number(b.seq) - Number(a.seq) || (String(a.time) < String(b.time) ? 1 : -1));
  return {
    ...first,
    requests: requests.slice(0, limit),
    ...("inFlight" in first
      ? { inFlight: sum(reports, "inFlight"), kept: Math.min(sum(reports, "kept"), Number(first.capacity)) }
      : {}),
  };
}

export function mergeTasks(own: Json, reports: readonly Json[]): Json {
  const merged = new Map<string, Json>();
  for (const task of [own, ...reports].flatMap((report) => asList(report.tasks))) {
    const key = `${String(task.kind)} ${String(task.name)}`;
    const known = merged.get(key);
    merged.set(key, known ? withServerStates(added(known, task)) : task);
  }
  return { ...own, requestsInFlight: sum(reports, "requestsInFlight"), tasks: [...merged.values()] };
}

function withServerStates(task: Json): Json {
  const detail = asRecord(task.detail);
  if (!Array.isArray(detail.servers)) return task;
  return { ...task, detail: { ...detail, servers: mergeServerStates(detail.servers as ServerState[]) } };
}

export function mergeMemory(own: Json, reports: readonly Json[]): Json {
  const threads = reports.map(({ heap, external, parts: of }, index) => ({
    thread: index + 1,
    connections: asRecord(asRecord(of).connections).connections,
    heap,
    external,
  }));
  const all = [own, ...reports];
  const parts = reports.map((report) => asRecord(report.parts)).reduce(added, {});
  return {
    ...own,
    heap: { ...all.map((report) => asRecord(report.heap)).reduce(added), limitBytes: asRecord(own.heap).limitBytes },
    external: all.map((report) => asRecord(report.external)).reduce(added),
    // Rate limit buckets are in shared memory and counted once.
    parts: { ...parts, limits: asRecord(own.parts).limits },
    threads,
  };
}

export function mergeShadow(reports: readonly Json[]): Json {
  const rules = new Map<string, Json>();
  for (const rule of reports.flatMap((report) => asList(report.rules))) {
    const key = JSON.stringify([rule.route, rule.policy, rule.rule]);
    const known = rules.get(key);
    rules.set(key, known ? mergeRule(known, rule) : rule);
  }
  return {
    ...reports[0],
    rules: [...rules.values()].sort((one, other) => Number(other.denied) - Number(one.denied)),
    others: sum(reports, "others"),
  };
}

function mergeRule(one: Json, other: Json): Json {
  const subjects = new Map<unknown, number>();
  for (const { subject, denied } of [...asList(one.subjects), ...asList(other.subjects)])
    subjects.set(subject, (subjects.get(subject) ?? 0) + Number(denied));
  return {
    ...one,
    denied: Number(one.denied) + Number(other.denied),
    others: Number(one.others) + Number(other.others),
    subjects: [...subjects]
      .map(([subject, denied]) => ({ subject, denied }))
      .sort((first, second) => second.denied - first.denied),
    first: String(one.first) < String(other.first) ? one.first : other.first,
    last: String(one.last) > String(other.last) ? one.last : other.last,
    examples: [...asList(one.examples), ...asList(other.examples)].slice(0, Math.max(1, asList(one.examples).length)),
  };
}

const MIRROR_COUNTS = ["compared", "same", "status", "shape", "failed", "unread", "slower", "others"];

export function mergeMirrors(reports: readonly Json[]): Json {
  const mirrors = new Map<string, Json>();
  for (const one of reports.flatMap((report) => asList(report.mirrors))) {
    const key = JSON.stringify([one.route, one.mirror]);
    const known = mirrors.get(key);
    mirrors.set(key, known ? mergeMirror(known, one) : one);
  }
  return {
    ...reports[0],
    mirrors: [...mirrors.values()].sort((one, other) => Number(other.compared) - Number(one.compared)),
    others: sum(reports, "others"),
  };
}

function mergeMirror(one: Json, other: Json): Json {
  const counts = Object.fromEntries(MIRROR_COUNTS.map((name) => [name, Number(one[name]) + Number(other[name])]));
  const mean = (name: string): number => {
    const total = Number(one[name]) * Number(one.compared) + Number(other[name]) * Number(other.compared);
    return Math.round((total / Number(counts.compared)) * 100) / 100;
  };
  const differences = new Map<unknown, Json>();
  for (const row of [...asList(one.differences), ...asList(other.differences)]) {
    const known = differences.get(row.difference);
    const requests = Number(known?.requests ?? 0) + Number(row.requests);
    differences.set(row.difference, { ...(known ?? row), requests });
  }
  return {
    ...one,
    ...counts,
    backendMs: mean("backendMs"),
    mirrorMs: mean("mirrorMs"),
    differences: [...differences.values()].sort((first, second) => Number(second.requests) - Number(first.requests)),
  };
}

const RUNTIME_COUNTS = ["connections", "sessions", "children"];

/** The configuration comes from the main thread, and the run-time counts come from the worker threads. */
export function mergeDumps(own: Json, dumps: readonly Json[]): Json {
  const backends = asList(own.backends).map((backend, index) => {
    const reported: Json[] = dumps.flatMap((dump) => {
      const one = asList(dump.backends)[index];
      return one !== undefined && one.name === backend.name ? [one] : [];
    });
    const counts = RUNTIME_COUNTS.filter((name) => typeof backend[name] === "number").map((name) => [
      name,
      reported.reduce((total, one) => total + Number(one[name] ?? 0), 0),
    ]);
    return { ...[backend, ...reported].reduce(withHealth), ...Object.fromEntries(counts) };
  });
  return { ...own, backends };
}

/** Each thread has its own view of the health of servers and providers. The worst one is shown. */
function withHealth(one: Json, other: Json): Json {
  const targets = asList(one.targets);
  const health = [one.health, other.health].filter(isRecord);
  return {
    ...one,
    ...(health.length === 0 ? {} : { health: health.reduce(worse) }),
    ...(targets.some((target) => isRecord(target.recent))
      ? { targets: targets.map((target, i) => worse(target, asRecord(asList(other.targets)[i]))) }
      : {}),
  };
}

function worse(one: Json, other: Json): Json {
  const ages = [one.lastFailureAgoMs, other.lastFailureAgoMs].filter((age) => typeof age === "number");
  return {
    ...one,
    failures: Math.max(Number(one.failures ?? 0), Number(other.failures ?? 0)),
    resting: one.resting === true || other.resting === true,
    ...(isRecord(one.recent) ? { recent: added(one.recent, asRecord(other.recent)) } : {}),
    ...(ages.length === 0 ? {} : { lastFailureAgoMs: Math.min(...ages) }),
  };
}

function added(one: Json, other: Json): Json {
  const result: Record<string, unknown> = { ...one };
  for (const [name, value] of Object.entries(other)) result[name] = addedValue(name, one[name], value);
  return result;
}

function addedValue(name: string, one: unknown, other: unknown): unknown {
  if (one === undefined || one === null) return other;
  if (typeof one === "number" && typeof other === "number")
    return NAMES.has(name) ? one : name === "ageMs" ? Math.max(one, other) : one + other;
  if (Array.isArray(one) && Array.isArray(other)) return joined(one, other);
  if (isRecord(one) && isRecord(other)) return added(one, other);
  return one;
}

function joined(one: readonly unknown[], other: readonly unknown[]): unknown[] {
  const result = [...one];
  for (const value of other) {
    const name = mergeKey(value);
    const at = name === undefined ? -1 : result.findIndex((known) => mergeKey(known) === name);
    if (at < 0) result.push(value);
    else result[at] = added(result[at] as Json, value as Json);
  }
  return result;
}

/** Returns the name of a heap space or pool. Nested tasks have a `kind` and are listed separately. */
function mergeKey(value: unknown): string | undefined {
  if (!isRecord(value) || "kind" in value) return undefined;
  const name = value.name ?? value.backend;
  return typeof name === "string" ? name : undefined;
}

function sum(reports: readonly Json[], name: string): number {
  return reports.reduce((total, report) => total + Number(report[name] ?? 0), 0);
}

function asList(value: unknown): Json[] {
  return Array.isArray(value) ? (value as Json[]) : [];
}

function asRecord(value: unknown): Json {
  return isRecord(value) ? value : {};
}

function isRecord(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function mergeHistories(reports: readonly HistoryReport[]): HistoryReport {
  const points = new Map<number, HistoryPoint>();
  for (const report of reports)
    for (const point of report.points) {
      const known = points.get(point.at);
      points.set(point.at, known ? { at: point.at, ...sumOfTraffic([known, point]) } : point);
    }
  return {
    ...mergedWindow(reports),
    points: [...points.values()].sort((a, b) => a.at - b.at),
    total: sumOfTraffic(reports.map(({ total }) => total)),
  };
}

function mergedWindow(reports: readonly TrafficWindow[]): TrafficWindow {
  return {
    slotSeconds: reports[0]?.slotSeconds ?? 0,
    windowSeconds: Math.max(0, ...reports.map(({ windowSeconds }) => windowSeconds)),
    coveredSeconds: Math.max(0, ...reports.map(({ coveredSeconds }) => coveredSeconds)),
  };
}

export function mergeTrafficRows(reports: readonly TrafficRows[]): TrafficRows {
  const rows = new Map<string, TrafficRow>();
  for (const row of reports.flatMap((report) => report.rows)) {
    const key = JSON.stringify(row.name);
    const known = rows.get(key);
    rows.set(key, known ? addedRows(known, row) : row);
  }
  return {
    ...mergedWindow(reports),
    rows: [...rows.values()].sort((a, b) => b.requests - a.requests),
  };
}

function addedRows(a: TrafficRow, b: TrafficRow): TrafficRow {
  const lastAt = [a.lastAt, b.lastAt]
    .filter((at) => at !== undefined)
    .sort()
    .at(-1);
  return {
    name: a.name,
    ...sumOfTraffic([a, b]),
    trend: addedTrend(a.trend, b.trend),
    ...defined({ lastAt }),
  };
}

/** Threads may read their slots in different seconds, so one trend can be longer. Both end now. */
function addedTrend(a: readonly number[], b: readonly number[]): number[] {
  const length = Math.max(a.length, b.length);
  return Array.from({ length }, (_unused, i) => (a[i - length + a.length] ?? 0) + (b[i - length + b.length] ?? 0));
}
