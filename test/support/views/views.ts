/**
 * Reads every view of the requests that a gateway served, and describes where two of them differ.
 */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { RECENT_REQUESTS } from "../../../src/record/recent-requests.ts";
import { type RequestRecord, resultOf } from "../../../src/record/trace/record.ts";
import { eventually } from "../eventually.ts";
import { gwctl } from "../gwctl.ts";
import type { Span } from "../otlp/collector.ts";
import { type Sent, USERS } from "./generator.ts";
import type { Served } from "./servers.ts";
import type { UiViews } from "./ui.ts";

type Fields = Readonly<Record<string, unknown>>;
type ById<Row> = ReadonlyMap<string, Row>;

export interface ViewedGateway {
  readonly adminUrl: string;
  readonly auditFile: string;
  /** The lines of the running process. */
  log(): readonly string[];
  /** The lines of processes that were killed. */
  readonly earlierLog?: readonly string[];
}

/** The views of one replica. */
interface ReplicaViews {
  /** The requests of the running process. */
  readonly lines: readonly Fields[];
  /** False after a kill: the store has the traffic of the killed process, up to its last minute. */
  readonly isWholeTraffic: boolean;
  json(path: string): Promise<Fields>;
  gwctl(...args: readonly string[]): Promise<Fields>;
}

/** The views of all replicas together. `json` and `gwctl` ask the first one. */
export interface Views {
  readonly replicas: readonly ReplicaViews[];
  readonly log: ById<Fields>;
  readonly audit: readonly Fields[];
  readonly recent: ById<RequestRecord>;
  readonly stored: ById<RequestRecord>;
  readonly listed: ById<RequestRecord>;
  readonly metrics: ReadonlyMap<string, number>;
  json(path: string): Promise<Fields>;
  gwctl(...args: readonly string[]): Promise<Fields>;
}

export async function readViews(...gateways: readonly ViewedGateway[]): Promise<Views> {
  const replicas = gateways.map(replicaViews);
  const [first] = replicas;
  if (first === undefined) throw new Error("no gateway");
  const lines = gateways.flatMap((one) => requestLines([...(one.earlierLog ?? []), ...one.log()]));
  const audited = lines.filter(isAudited).length;
  let audit: Fields[] = [];
  await eventually("the audit log is written", () => {
    audit = gateways.flatMap(({ auditFile }) => linesOf(readFileSync(auditFile, "utf8")));
    return audit.length >= audited;
  });
  const records = async (read: (replica: ReplicaViews) => Promise<unknown>): Promise<ById<RequestRecord>> =>
    byId((await Promise.all(replicas.map(read))).flat() as RequestRecord[]);
  return {
    replicas,
    log: byId(lines),
    audit,
    recent: await records(async ({ json }) => (await json("/debug/requests?limit=500")).requests),
    stored: await storedRecords(first.json),
    listed: await records((replica) => replica.gwctl("requests", "--limit", "500")),
    metrics: await readMetrics(gateways),
    json: first.json,
    gwctl: first.gwctl,
  };
}

function replicaViews(gateway: ViewedGateway): ReplicaViews {
  const { adminUrl } = gateway;
  return {
    lines: requestLines(gateway.log()),
    isWholeTraffic: (gateway.earlierLog ?? []).length === 0,
    async json(path) {
      // The gateway can close a connection that is kept open while this process is busy, just before it is used again.
      const [response] = (await once(get(`${adminUrl}${path}`, { agent: false }), "response")) as [IncomingMessage];
      const body = await text(response);
      if (response.statusCode !== 200) throw new Error(`${path}: ${response.statusCode} ${body}`);
      return JSON.parse(body) as Fields;
    },
    async gwctl(...args) {
      const { code, stdout, stderr } = await gwctl([...args, "-o", "json", "-p", new URL(adminUrl).port]);
      if (code !== 0) throw new Error(`gwctl ${args.join(" ")}: ${stderr}`);
      return JSON.parse(stdout) as Fields;
    },
  };
}

function requestLines(log: readonly string[]): Fields[] {
  return linesOf(log.join("\n")).filter(({ message }) => message === "request");
}

/** Adds the samples of all replicas. */
async function readMetrics(gateways: readonly ViewedGateway[]): Promise<Map<string, number>> {
  const sums = new Map<string, number>();
  for (const { adminUrl } of gateways)
    for (const [sample, value] of parseMetrics(await (await fetch(`${adminUrl}/metrics`)).text()))
      sums.set(sample, (sums.get(sample) ?? 0) + value);
  return sums;
}

/** Pages of the history end at a time, so requests of the same millisecond are read twice. */
async function storedRecords(json: Views["json"]): Promise<ById<RequestRecord>> {
  const found = new Map<string, RequestRecord>();
  for (let beforeMs = Date.now() + 60_000; ; ) {
    const page = (await json(`/debug/requests?limit=500&before=${new Date(beforeMs).toISOString()}`))
      .requests as RequestRecord[];
    const known = found.size;
    for (const record of page) found.set(record.id, record);
    const last = page.at(-1);
    if (last === undefined || found.size === known) return found;
    beforeMs = Date.parse(last.time) + 1;
  }
}

function linesOf(text: string): Fields[] {
  return text.split("\n").flatMap((line) => (line.startsWith("{") ? [JSON.parse(line) as Fields] : []));
}

function byId<Row extends { readonly id?: unknown }>(rows: readonly Row[]): ById<Row> {
  return new Map(rows.map((row) => [String(row.id), row]));
}

function parseMetrics(text: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const line of text.split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0 && !line.startsWith("#")) found.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return found;
}

/** Sums the samples of a metric by the values of some labels. */
export function sumOfMetric(metrics: Views["metrics"], name: string, where: Fields = {}): number {
  let sum = 0;
  for (const [sample, value] of metrics) {
    if (sample !== name && !sample.startsWith(`${name}{`)) continue;
    if (Object.entries(where).every(([label, wanted]) => sample.includes(`${label}="${wanted}"`))) sum += value;
  }
  return sum;
}

/** Compares what each view says about each request with what the client knows, and with the access log. */
export function differencesByRequest(sent: readonly Sent[], { calls }: Served, views: Views): string[] {
  const found: string[] = [];
  const kept = new Set(
    views.replicas.flatMap(({ lines }) => (lines.length <= RECENT_REQUESTS ? lines.map(({ id }) => id) : [])),
  );
  for (const one of sent) {
    const line = views.log.get(one.id);
    const differs = (view: string, what: string, actual: unknown, expected: unknown): void => {
      if (actual !== expected)
        found.push(`${one.kind} ${one.id}: ${what} is ${String(actual)} in ${view}, not ${String(expected)}`);
    };
    const near = (view: string, what: string, actual: unknown, expected: unknown, most: number): void => {
      if (!(Math.abs(Number(actual) - Number(expected)) <= most)) differs(view, what, actual, expected);
    };
    if (line === undefined) {
      found.push(`${one.kind} ${one.id}: not in the access log`);
      continue;
    }
    differs("the access log", "outcome", line.outcome, one.outcome);
    differs("the access log", "status", line.status ?? null, one.status);
    differs("the access log", "route", line.route ?? null, one.route === "nowhere" ? null : one.route);
    const [input, output] = tokensOf(line);
    const costNano = costNanoOf(line);
    if (one.tokens !== undefined) {
      differs("the access log", "input", input, one.tokens[0]);
      differs("the access log", "output", output, one.tokens[1]);
    }
    if (one.costNano !== undefined) differs("the access log", "cost", costNano, one.costNano);
    if (one.outcome === "ok")
      near("the access log", "duration", Math.min(Number(line.durationMs), one.clientMs), line.durationMs, 1);
    const attempts = line.attempts === undefined ? undefined : String(line.attempts).split("; ").length;
    if (one.attempts !== undefined) differs("the access log", "attempts", attempts, one.attempts);
    for (const [view, records] of [
      ["recent requests", views.recent],
      ["gwctl requests", views.listed],
      ["the history", views.stored],
    ] as const) {
      const record = records.get(one.id);
      if (record === undefined) {
        if (view === "the history" || kept.has(one.id)) found.push(`${one.kind} ${one.id}: not in ${view}`);
        continue;
      }
      differs(view, "outcome", resultOf(record), one.outcome);
      differs(view, "status", record.status, one.status);
      differs(view, "route", record.route, line.route ?? null);
      differs(view, "backend", record.backend, line.backend ?? null);
      differs(view, "subject", record.subject ?? undefined, one.user);
      differs(view, "input", record.llm?.inputTokens ?? 0, input);
      differs(view, "output", record.llm?.outputTokens ?? 0, output);
      differs(view, "cost", Math.round((record.llm?.cost ?? 0) * 1e9), costNano);
      near(view, "duration", record.durationMs, line.durationMs, 1);
      differs(view, "bytes", record.responseBytes, line.bytes);
      differs(view, "error", record.failure?.code, line.error);
      // The server over stdio counts no calls.
      if (!calls.has(one.id) && (one.route !== "tools" || one.tool?.endsWith("/secret") === true))
        differs(view, "answered by", record.answeredBy === "upstream", false);
    }
    for (const difference of recordDifferences(views.recent.get(one.id), views.stored.get(one.id)))
      found.push(`${one.kind} ${one.id}: ${difference}`);
  }
  return found;
}

/** Compares what the clients know with what the servers counted. */
export function differencesAtServers(sent: readonly Sent[], { calls, tokens }: Served): string[] {
  return sent.flatMap(({ id, kind, attempts, tokens: known, model }) => {
    const served = tokens.get(id) ?? [0, 0];
    const isKnown = known !== undefined && model !== undefined;
    return [
      ...(attempts === undefined || calls.get(id) === attempts ? [] : [`${kind} ${id}: ${calls.get(id)} calls`]),
      ...(!isKnown || (known[0] === served[0] && known[1] === served[1]) ? [] : [`${kind} ${id}: served ${served}`]),
    ];
  });
}

interface Sums {
  requests: number;
  ok: number;
  rejected: number;
  failed: number;
  aborted: number;
  input: number;
  output: number;
  costNano: number;
  readonly durations: number[];
}

function sumsOf(lines: readonly Fields[]): Sums {
  const sums: Sums = {
    requests: 0,
    ok: 0,
    rejected: 0,
    failed: 0,
    aborted: 0,
    input: 0,
    output: 0,
    costNano: 0,
    durations: [],
  };
  for (const line of lines) {
    const [input, output] = tokensOf(line);
    sums.requests += 1;
    sums[line.outcome as Sent["outcome"]] += 1;
    sums.input += input;
    sums.output += output;
    sums.costNano += costNanoOf(line);
    sums.durations.push(Number(line.durationMs));
  }
  return sums;
}

function costNanoOf(line: Fields): number {
  return Math.round(Number(line["llm.cost"] ?? 0) * 1e9);
}

class Differences {
  readonly found: string[] = [];

  check(what: string, actual: unknown, expected: unknown): void {
    if (actual !== expected) this.found.push(`${what} is ${String(actual)}, not ${String(expected)}`);
  }
}

const nano = (dollars: unknown): number => Math.round(Number(dollars) * 1e9);

function groupBy(lines: readonly Fields[], name: (line: Fields) => unknown): Map<string, Sums> {
  const groups = new Map<string, Fields[]>();
  for (const line of lines) {
    const key = String(name(line) ?? "");
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [line]);
    else group.push(line);
  }
  return new Map([...groups].map(([key, group]) => [key, sumsOf(group)]));
}

/** Returns the spending of each budget and key. */
function spendingOf(lines: readonly Fields[]): Record<string, number> {
  const sum = (which: (line: Fields) => boolean, amount: (line: Fields) => number): number =>
    lines.filter(which).reduce((total, line) => total + amount(line), 0);
  const tokens = (line: Fields): number => tokensOf(line)[0] + tokensOf(line)[1];
  const spending: Record<string, number> = {
    "shared (no key)": sum(() => true, costNanoOf),
    "poor (no key)": sum(({ route }) => route === "llm-poor", tokens),
  };
  for (const user of USERS)
    spending[`each ${user}`] = sum((line) => line.route === "llm" && line["apiKey.user_id"] === user, tokens);
  return spending;
}

/** Compares the sums of every view with those of the access log. */
export async function differencesInSums(views: Views): Promise<string[]> {
  const found = [
    ...(await differencesInBudgets(views)),
    ...differencesInMetrics(views),
    ...(await differencesInUsage(views)),
  ];
  for (const replica of views.replicas.filter(({ isWholeTraffic }) => isWholeTraffic))
    found.push(...(await differencesInTraffic(replica)), ...(await differencesInStatus(replica)));
  return found;
}

export async function differencesInBudgets(views: Pick<Views, "log" | "json">): Promise<string[]> {
  const differences = new Differences();
  const spending = spendingOf([...views.log.values()]);
  for (const { name, owner, unit, keys } of (await views.json("/debug/budgets")).budgets as BudgetView[])
    for (const { key, spent } of keys)
      differences.check(
        `budget ${name} ${key} of ${owner}`,
        unit === "usd" ? nano(spent) : spent,
        spending[`${name} ${key}`],
      );
  return differences.found;
}

/** The metrics count since the start of the processes. */
function differencesInMetrics({ metrics, replicas }: Views): string[] {
  const differences = new Differences();
  const lines = replicas.flatMap((replica) => replica.lines);
  const all = sumsOf(lines);
  const check = (what: string, where: Fields, expected: unknown, sum = sumOfMetric(metrics, what, where)): void =>
    differences.check(`${what} ${JSON.stringify(where)}`, sum, expected);
  for (const [account, amount] of Object.entries(spendingOf(lines))) {
    const [budget = "", key = ""] = account.split(/ (.*)/s);
    const spent = sumOfMetric(metrics, "gateway_budget_spent_total", { budget, key });
    check("gateway_budget_spent_total", { budget, key }, amount, budget === "shared" ? nano(spent) : spent);
  }
  check("gateway_requests_total", {}, all.requests);
  for (const outcome of OUTCOMES) check("gateway_requests_total", { outcome }, all[outcome]);
  for (const [route, { requests, durations }] of groupBy(lines, (line) => line.route)) {
    check("gateway_requests_total", { route }, requests);
    const seconds = sumOfMetric(metrics, "gateway_request_duration_seconds_sum", { route });
    const logged = durations.reduce((sum, ms) => sum + ms, 0) / 1000;
    if (Math.abs(seconds - logged) > requests / 1000) differences.check(`duration of ${route}`, seconds, logged);
  }
  for (const type of ["input", "output"] as const)
    check("gen_ai_client_token_usage_sum", { gen_ai_token_type: type }, all[type]);
  const cost = nano(sumOfMetric(metrics, "gen_ai_client_cost_usd_total"));
  check("gen_ai_client_cost_usd_total", {}, all.costNano, cost);
  for (const [key, sums] of groupBy(lines, userOf)) {
    if (key === "") continue;
    check("gateway_key_requests_total", { key }, sums.requests);
    for (const type of ["input", "output"] as const) check("gateway_key_tokens_total", { key, type }, sums[type]);
  }
  return differences.found;
}

/** Compares the usage of the history, and the history with the budgets. */
async function differencesInUsage(views: Views): Promise<string[]> {
  const differences = new Differences();
  const lines = [...views.log.values()];
  const all = sumsOf(lines);
  const same = (what: string, sums: Fields, wanted: Sums): void => {
    for (const name of ["requests", ...OUTCOMES] as const)
      differences.check(`${name} of ${what}`, sums[name], wanted[name]);
    differences.check(`input of ${what}`, sums.inputTokens, wanted.input);
    differences.check(`output of ${what}`, sums.outputTokens, wanted.output);
    differences.check(`cost of ${what}`, nano(sums.cost), wanted.costNano);
  };
  for (const [dimension, nameOf] of Object.entries(DIMENSIONS)) {
    const usage = await views.json(`/debug/usage?by=${dimension}&since=1h&limit=1000`);
    const rows = new Map((usage.rows as Fields[]).map((row) => [String(row[dimension]), row]));
    for (const [name, sums] of groupBy(lines, nameOf))
      same(`usage by ${dimension} ${name}`, rows.get(name) ?? {}, sums);
    same(`usage by ${dimension}`, usage.total as Fields, all);
  }
  const lastUse = (await views.json("/debug/usage?by=key&since=1h")).rows as { key: string; lastAt: string | null }[];
  const inMemory = await Promise.all(views.replicas.map(({ json }) => json("/debug/history?by=key&seconds=3600")));
  const ends = inMemory.flatMap(({ rows }) => rows as (Fields & { name: string[] })[]);
  for (const user of USERS) {
    const records = [...views.stored.values()].filter(({ subject }) => subject === user);
    const arrived = records.reduce((last, { time }) => (time > last ? time : last), "");
    differences.check(`last use of ${user} in the history`, lastUse.find(({ key }) => key === user)?.lastAt, arrived);
    const ended = ends
      .filter(({ name }) => name[0] === user)
      .reduce((last, { lastAt }) => (String(lastAt) > last ? String(lastAt) : last), "");
    if (!(ended >= arrived && Date.parse(ended) <= Date.now()))
      differences.check(`last use of ${user} in memory`, ended, `after ${arrived}`);
  }
  same("gwctl usage", (await views.gwctl("usage", "--by", "route", "--since", "1h")).total as Fields, all);
  const { differing, accounts } = await views.gwctl("history", "budgets");
  differences.check("gwctl history budgets", differing === 0 ? "" : JSON.stringify(accounts), "");
  return differences.found;
}

/** Compares the traffic of the last day, which each process keeps in memory. */
async function differencesInTraffic({ lines, json }: ReplicaViews): Promise<string[]> {
  const differences = new Differences();
  const same = (what: string, numbers: Fields, wanted: Sums): void => {
    const sorted = [...wanted.durations].sort((a, b) => a - b);
    for (const [name, share] of PERCENTILES) {
      const exact = sorted[Math.ceil(sorted.length * share) - 1] ?? 0;
      // The access log rounds to microseconds, and the shortest durations share a bin.
      if (!(Math.abs(Number(numbers[name]) - exact) <= Math.max(0.1, exact * 0.05)))
        differences.check(`${name} of ${what}`, numbers[name], exact);
    }
    for (const name of ["requests", "rejected", "failed", "aborted"] as const)
      differences.check(`${name} of ${what}`, numbers[name], wanted[name]);
    differences.check(`tokens of ${what}`, numbers.tokens, wanted.input + wanted.output);
    differences.check(`cost of ${what}`, nano(numbers.cost), wanted.costNano);
  };
  for (const seconds of [3_600, 86_400]) {
    const total = (await json(`/debug/history?seconds=${seconds}`)).total as Fields;
    same(`traffic of ${seconds} s`, total, sumsOf(lines));
    for (const [group, nameOf] of Object.entries(TRAFFIC_GROUPS)) {
      const report = await json(`/debug/history?by=${group}&seconds=${seconds}`);
      const rows = report.rows as (Fields & { name: string[] })[];
      for (const [name, sums] of groupBy(lines, nameOf))
        if (name !== "") same(`${group} ${name}`, rows.find((row) => row.name.join("/") === name) ?? {}, sums);
    }
  }
  return differences.found;
}

/** Compares the problems, and the last minute in gwctl, unless the requests took longer. */
async function differencesInStatus({ lines, gwctl: run }: ReplicaViews): Promise<string[]> {
  const differences = new Differences();
  const all = sumsOf(lines);
  const [status, top] = [await run("status"), await run("top", "--once")];
  const problems = status.problems as readonly { readonly level: string; readonly text: string }[];
  // The list of problems names every failed and rejected request.
  for (const [level, outcome] of [
    ["bad", "failed"],
    ["warn", "rejected"],
  ] as const) {
    const counts = problems.flatMap((one) =>
      one.level === level ? [Number(new RegExp(`^(\\d+) requests? .* ${outcome} `).exec(one.text)?.[1] ?? 0)] : [],
    );
    const sum = counts.reduce((total, count) => total + count, 0);
    differences.check(`${outcome} in the problems`, sum, all[outcome]);
  }
  if (Date.now() - Math.min(...lines.map(({ time }) => Date.parse(String(time)))) > 60_000) return differences.found;
  const same = (what: string, numbers: Fields, windowMs: number, wanted: Sums, divisor: number): void => {
    differences.check(`requests of ${what}`, numbers.requests, wanted.requests);
    differences.check(`failed of ${what}`, numbers.failed, wanted.failed / divisor);
    differences.check(`rejected of ${what}`, numbers.rejected, wanted.rejected / divisor);
    const rate = (wanted.requests * 1000) / windowMs;
    if (Math.abs(Number(numbers.perSecond) / rate - 1) > 0.001)
      differences.check(`rate of ${what}`, numbers.perSecond, rate);
  };
  const traffic = status.traffic as Fields;
  same("gwctl status", traffic, Number(traffic.windowMs), all, 1);
  const rows = top.route as (Fields & { name: string })[];
  for (const [route, wanted] of groupBy(lines, (line) => line.route)) {
    const numbers = rows.find(({ name }) => name === (route || "(no route)")) ?? {};
    same(`${route} in gwctl top`, numbers, Number(top.windowMs), wanted, wanted.requests);
  }
  return differences.found;
}

/** Compares the spans of each request with the access log. `spans` has those of all requests in the log. */
export function differencesInSpans({ log }: Pick<Views, "log">, spans: readonly Span[]): string[] {
  const differences = new Differences();
  const roots = new Map<string, Span[]>();
  const parts = new Map<string, Span[]>();
  const add = (to: Map<string, Span[]>, key: string, span: Span): void =>
    void to.set(key, [...(to.get(key) ?? []), span]);
  for (const span of spans) {
    const { "gateway.request.id": id } = span.attributes;
    if (id === undefined) add(parts, span.traceId, span);
    else add(roots, String(id), span);
  }
  for (const [id, line] of log) {
    const [root, ...more] = roots.get(id) ?? [];
    differences.check(`spans of ${id}`, more.length + (root === undefined ? 0 : 1), 1);
    if (root === undefined) continue;
    const check = (what: string, actual: unknown, expected: unknown): void =>
      differences.check(`${what} in the span of ${id}`, actual, expected);
    const { attributes } = root;
    check("span ID", root.spanId, line.span_id);
    check("status", number(attributes["http.response.status_code"]), line.status);
    check("route", attributes["gateway.route"], line.route);
    check("backend", attributes["gateway.backend"], line.backend);
    const isFailed = Number(line.status) >= 500;
    check("error", attributes["error.type"], line.error ?? (isFailed ? String(line.status) : undefined));
    if (Math.abs(root.micros / 1000 - Number(line.durationMs)) > 1) check("duration", root.micros, line.durationMs);
    const children = parts.get(root.traceId) ?? [];
    if (line["gen_ai.provider.name"] !== undefined) {
      const call = children.find((span) => span.attributes["gen_ai.operation.name"] !== undefined)?.attributes ?? {};
      for (const name of ["gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"])
        check(name, call[name], line[name]);
      const [input, output] = tokensOf(line);
      check("input", Number(call["gen_ai.usage.input_tokens"] ?? 0), input);
      check("output", Number(call["gen_ai.usage.output_tokens"] ?? 0), output);
      check("cost", nano(call["gateway.llm.cost_usd"] ?? 0), costNanoOf(line));
    }
    if (line["mcp.method"] !== undefined) {
      const call = children.find((span) => span.attributes["mcp.method.name"] !== undefined)?.attributes ?? {};
      check("MCP method", call["mcp.method.name"], line["mcp.method"]);
      check("MCP outcome", call["gateway.mcp.outcome"], line["mcp.outcome"]);
      check("tool", call["gen_ai.tool.name"], line["mcp.tool"]);
    }
    if (line.attempts === undefined) continue;
    const resent = children.map((span) => Number(span.attributes["http.request.resend_count"] ?? 0));
    check("attempts", 1 + Math.max(0, ...resent), String(line.attempts).split("; ").length);
  }
  return differences.found;
}

/** Numbers of protobuf messages are strings in JSON. */
function number(value: unknown): number | undefined {
  return value === undefined ? undefined : Number(value);
}

/** Compares what pages of the web UI compute with the access log. */
/** The UI is that of the first gateway, which shows its own traffic and the usage of all gateways. */
export async function differencesInUi({ log, replicas }: Pick<Views, "log" | "replicas">, ui: UiViews) {
  const differences = new Differences();
  const lines = [...log.values()];
  const own = replicas[0]?.lines ?? [];
  const all = sumsOf(own);
  const total = await ui.total();
  for (const name of ["requests", "rejected", "failed", "aborted"] as const)
    differences.check(`${name} of the overview`, total[name], all[name]);
  differences.check("tokens of the overview", total.tokens, all.input + all.output);
  differences.check("cost of the overview", nano(total.cost), all.costNano);
  for (const [route, sums] of groupBy(own, (line) => line.route)) {
    if (route === "") continue;
    const shown = await ui.route(route);
    differences.check(`requests of ${route} in the overview`, shown.requests, sums.requests);
    differences.check(`failed share of ${route}`, shown.errorShare, sums.failed / sums.requests);
    differences.check(`rejected share of ${route}`, shown.rejectedShare, sums.rejected / sums.requests);
  }
  for (const by of ["key", "user", "model"] as const) {
    const rows = new Map((await ui.spend(by)).map((row) => [row.name, row]));
    for (const [name, sums] of groupBy(lines, DIMENSIONS[by] as (line: Fields) => unknown)) {
      const row = rows.get(name);
      differences.check(`requests of ${by} ${name} on the page of spend`, row?.requests, sums.requests);
      differences.check(`failed of ${by} ${name} on the page of spend`, row?.failed, sums.failed);
      differences.check(`input of ${by} ${name} on the page of spend`, row?.inputTokens, sums.input);
      differences.check(`output of ${by} ${name} on the page of spend`, row?.outputTokens, sums.output);
      differences.check(`cost of ${by} ${name} on the page of spend`, nano(row?.cost), sums.costNano);
    }
  }
  return differences.found;
}

const OUTCOMES = ["ok", "rejected", "failed", "aborted"] as const;

const PERCENTILES = [
  ["p50Ms", 0.5],
  ["p95Ms", 0.95],
  ["p99Ms", 0.99],
] as const;

/** Calls of tools that do not exist, or that may not be called, are counted together. */
function toolOf(line: Fields): unknown {
  if (line["mcp.tool"] === undefined) return "";
  return UNKNOWN_TOOLS.has(String(line["mcp.tool"])) ? "/(other)" : `${line["mcp.target"]}/${line["mcp.tool"]}`;
}
const UNKNOWN_TOOLS = new Set(["secret", "nonsense"]);

function userOf(line: Fields): unknown {
  return line["apiKey.user_id"];
}

/** The names of the rows in the report of traffic. */
const TRAFFIC_GROUPS: Readonly<Record<string, (line: Fields) => unknown>> = {
  node: ({ gateway, route = "", backend = "" }) => `${gateway}/${route}/${backend}`,
  tool: toolOf,
  user: userOf,
};

interface BudgetView {
  readonly name: string;
  readonly owner: string;
  readonly unit: string;
  readonly keys: readonly { readonly key: string; readonly spent: number }[];
}

/** The value of each dimension of the usage in a line of the access log. */
const DIMENSIONS: Readonly<Record<string, (line: Fields) => unknown>> = {
  key: (line) => line["apiKey.user_id"],
  user: (line) => line["apiKey.user_id"],
  route: ({ route }) => route,
  model: (line) => line["gen_ai.response.model"] ?? line["gen_ai.request.model"],
  provider: (line) => line["gen_ai.provider.name"],
  server: (line) => line["mcp.target"],
  tool: (line) => line["mcp.tool"],
};

/** Only calls of models and tools are audited. */
function isAudited(line: Fields): boolean {
  return line["mcp.method"] === "tools/call" || line["gen_ai.request.model"] !== undefined;
}

/** Compares the audit log with the access log. */
export function differencesInAudit(views: Views): string[] {
  const found: string[] = [];
  const audited = new Map<string, Fields[]>();
  for (const record of views.audit) audited.set(String(record.id), [...(audited.get(String(record.id)) ?? []), record]);
  for (const [id, line] of views.log) {
    const [record, ...more] = audited.get(id) ?? [];
    const records = more.length + (record === undefined ? 0 : 1);
    if (records !== (isAudited(line) ? 1 : 0)) found.push(`${id}: ${records} audit records`);
    if (record === undefined) continue;
    const wanted = record.kind === "llm" ? line.outcome : (line["mcp.outcome"] ?? line.outcome);
    if (record.subject !== line.user) found.push(`${id}: subject ${record.subject} in the audit log, not ${line.user}`);
    if (record.outcome !== wanted) found.push(`${id}: outcome ${record.outcome} in the audit log, not ${wanted}`);
    if (record.kind !== "llm") continue;
    const [input, output] = tokensOf(line);
    if ((record.inputTokens ?? 0) !== input || (record.outputTokens ?? 0) !== output)
      found.push(`${id}: tokens ${record.inputTokens} and ${record.outputTokens} in the audit log`);
    if (Math.round(Number(record.cost ?? 0) * 1e9) !== costNanoOf(line)) found.push(`${id}: cost ${record.cost}`);
    if (Math.abs(Number(record.durationMs) - Number(line.durationMs)) > 1) found.push(`${id}: duration`);
  }
  return found;
}

/** The history does not keep these fields, or not all of their parts. */
const NOT_STORED = new Set(["seq", "isShort", "source", "steps", "upstreamMs"]);

function recordDifferences(recent: RequestRecord | undefined, stored: RequestRecord | undefined): string[] {
  if (recent === undefined || stored === undefined) return [];
  const names = new Set([...Object.keys(recent), ...Object.keys(stored)]);
  return [...names].flatMap((name) => {
    if (NOT_STORED.has(name)) return [];
    // The limits of requests that succeeded at once are not stored.
    if (name === "limits" && stored.limits === undefined && resultOf(recent) === "ok") return [];
    const [one, other] = [recent, stored].map((record) => JSON.stringify(comparable(record)[name]));
    return one === other ? [] : [`${name} is ${one} in recent requests and ${other} in the history`];
  });
}

/** The history keeps the detail of a failure, or the message if there is none. */
function comparable({ failure, ...record }: RequestRecord): Fields {
  return { ...record, failure: failure && [failure.code, failure.source, failure.detail ?? failure.message] };
}

export function tokensOf(line: Fields): readonly [number, number] {
  return [Number(line["gen_ai.usage.input_tokens"] ?? 0), Number(line["gen_ai.usage.output_tokens"] ?? 0)];
}
