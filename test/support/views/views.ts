/**
 * Reads every view of the requests that a gateway served, and describes where two of them differ.
 */
import { readFileSync } from "node:fs";
import { type RequestRecord, resultOf } from "../../../src/record/trace/record.ts";
import { eventually } from "../eventually.ts";
import type { TestGateway } from "../gateway.ts";
import { gwctl } from "../gwctl.ts";
import { type Sent, USERS } from "./generator.ts";
import type { Served } from "./servers.ts";

type Fields = Readonly<Record<string, unknown>>;
type ById<Row> = ReadonlyMap<string, Row>;

export interface Views {
  readonly log: ById<Fields>;
  readonly audit: readonly Fields[];
  readonly recent: ById<RequestRecord>;
  readonly stored: ById<RequestRecord>;
  readonly listed: ById<RequestRecord>;
  readonly metrics: ReadonlyMap<string, number>;
  json(path: string): Promise<Fields>;
  gwctl(...args: readonly string[]): Promise<Fields>;
}

export async function readViews(gateway: TestGateway, auditFile: string): Promise<Views> {
  const json = async (path: string): Promise<Fields> => {
    const response = await fetch(`${gateway.adminUrl}${path}`);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${path}: ${response.status} ${text}`);
    return JSON.parse(text) as Fields;
  };
  const { port } = new URL(gateway.adminUrl);
  const runGwctl = async (...args: readonly string[]): Promise<Fields> => {
    const { code, stdout, stderr } = await gwctl([...args, "-o", "json", "-p", port]);
    if (code !== 0) throw new Error(`gwctl ${args.join(" ")}: ${stderr}`);
    return JSON.parse(stdout) as Fields;
  };
  const records = async (path: string): Promise<ById<RequestRecord>> =>
    byId((await json(path)).requests as RequestRecord[]);
  const log = byId(linesOf(gateway.log().join("\n")).filter(({ message }) => message === "request"));
  const calls = [...log.values()].filter(isAudited).length;
  let audit: Fields[] = [];
  await eventually("the audit log is written", () => {
    audit = linesOf(readFileSync(auditFile, "utf8"));
    return audit.length >= calls;
  });
  return {
    log,
    audit,
    recent: await records("/debug/requests?limit=500"),
    stored: await storedRecords(json),
    listed: byId((await runGwctl("requests", "--limit", "500")) as unknown as RequestRecord[]),
    metrics: parseMetrics(await (await fetch(`${gateway.adminUrl}/metrics`)).text()),
    json,
    gwctl: runGwctl,
  };
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
export function differencesByRequest(sent: readonly Sent[], views: Views): string[] {
  const found: string[] = [];
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
        if (view === "the history" || sent.length <= 500) found.push(`${one.kind} ${one.id}: not in ${view}`);
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

/** Compares the sums of every view with those of the access log. */
export async function differencesInSums(views: Views): Promise<string[]> {
  const found: string[] = [];
  const lines = [...views.log.values()];
  const all = sumsOf(lines);
  const differs = (what: string, actual: unknown, expected: unknown): void => {
    if (actual !== expected) found.push(`${what} is ${String(actual)}, not ${String(expected)}`);
  };
  const nano = (dollars: unknown): number => Math.round(Number(dollars) * 1e9);
  const groupsBy = (name: (line: Fields) => unknown): Map<string, Sums> => {
    const groups = new Map<string, Fields[]>();
    for (const line of lines) {
      const key = String(name(line) ?? "");
      groups.set(key, [...(groups.get(key) ?? []), line]);
    }
    return new Map([...groups].map(([key, group]) => [key, sumsOf(group)]));
  };

  // Budgets.
  const spentBy = (which: (line: Fields) => boolean, amount: (line: Fields) => number): number =>
    lines.filter(which).reduce((sum, line) => sum + amount(line), 0);
  const tokens = (line: Fields): number => tokensOf(line)[0] + tokensOf(line)[1];
  const expected: Record<string, number> = {
    "shared (no key)": spentBy(() => true, costNanoOf),
    "poor (no key)": spentBy(({ route }) => route === "llm-poor", tokens),
  };
  for (const user of USERS)
    expected[`each ${user}`] = spentBy((line) => line.route === "llm" && line["apiKey.user_id"] === user, tokens);
  const budgets = (await views.json("/debug/budgets")).budgets as BudgetView[];
  for (const { name, owner, unit, keys } of budgets)
    for (const { key, spent } of keys)
      differs(`budget ${name} ${key} of ${owner}`, unit === "usd" ? nano(spent) : spent, expected[`${name} ${key}`]);
  for (const [account, amount] of Object.entries(expected)) {
    const [budget = "", key = ""] = account.split(/ (.*)/s);
    const metric = sumOfMetric(views.metrics, "gateway_budget_spent_total", { budget, key });
    differs(`gateway_budget_spent_total of ${account}`, budget === "shared" ? nano(metric) : metric, amount);
  }
  const { differing, accounts } = (await views.gwctl("history", "budgets")) as {
    differing: number;
    accounts: unknown;
  };
  differs("gwctl history budgets", differing === 0 ? "" : JSON.stringify(accounts), "");

  // Metrics.
  const { metrics } = views;
  differs("gateway_requests_total", sumOfMetric(metrics, "gateway_requests_total"), all.requests);
  for (const outcome of ["ok", "rejected", "failed", "aborted"] as const)
    differs(
      `gateway_requests_total ${outcome}`,
      sumOfMetric(metrics, "gateway_requests_total", { outcome }),
      all[outcome],
    );
  for (const [route, { requests, durations }] of groupsBy(({ route }) => route)) {
    differs(`gateway_requests_total of ${route}`, sumOfMetric(metrics, "gateway_requests_total", { route }), requests);
    const seconds = sumOfMetric(metrics, "gateway_request_duration_seconds_sum", { route });
    const logged = durations.reduce((sum, ms) => sum + ms, 0) / 1000;
    if (Math.abs(seconds - logged) > requests / 1000) differs(`duration of ${route}`, seconds, logged);
  }
  const ofType = (type: string): number =>
    sumOfMetric(metrics, "gen_ai_client_token_usage_sum", { gen_ai_token_type: type });
  differs("gen_ai_client_token_usage input", ofType("input"), all.input);
  differs("gen_ai_client_token_usage output", ofType("output"), all.output);
  differs("gen_ai_client_cost_usd_total", nano(sumOfMetric(metrics, "gen_ai_client_cost_usd_total")), all.costNano);
  for (const [key, sums] of groupsBy((line) => line["apiKey.user_id"])) {
    if (key === "") continue;
    differs(
      `gateway_key_requests_total of ${key}`,
      sumOfMetric(metrics, "gateway_key_requests_total", { key }),
      sums.requests,
    );
    for (const type of ["input", "output"] as const)
      differs(
        `gateway_key_tokens_total of ${key}`,
        sumOfMetric(metrics, "gateway_key_tokens_total", { key, type }),
        sums[type],
      );
  }

  // Usage of the history.
  const same = (what: string, sums: Fields, wanted: Sums): void => {
    for (const name of ["requests", "ok", "rejected", "failed", "aborted"] as const)
      differs(`${name} of ${what}`, sums[name], wanted[name]);
    differs(`input of ${what}`, sums.inputTokens, wanted.input);
    differs(`output of ${what}`, sums.outputTokens, wanted.output);
    differs(`cost of ${what}`, nano(sums.cost), wanted.costNano);
  };
  for (const [dimension, nameOf] of Object.entries(DIMENSIONS)) {
    const usage = await views.json(`/debug/usage?by=${dimension}&since=1h&limit=1000`);
    const rows = new Map((usage.rows as Fields[]).map((row) => [String(row[dimension]), row]));
    for (const [name, sums] of groupsBy(nameOf)) same(`usage by ${dimension} ${name}`, rows.get(name) ?? {}, sums);
    same(`usage by ${dimension}`, usage.total as Fields, all);
  }
  const lastUse = (await views.json("/debug/usage?by=key&since=1h")).rows as { key: string; lastAt: string | null }[];
  const inMemory = (await views.json("/debug/history?by=key&seconds=3600")).rows as (Fields & { name: string[] })[];
  for (const user of USERS) {
    const records = [...views.stored.values()].filter(({ subject }) => subject === user);
    const arrived = records.reduce((last, { time }) => (time > last ? time : last), "");
    differs(`last use of ${user} in the history`, lastUse.find(({ key }) => key === user)?.lastAt, arrived);
    const ended = String(inMemory.find(({ name }) => name[0] === user)?.lastAt);
    if (!(ended >= arrived && Date.parse(ended) <= Date.now()))
      differs(`last use of ${user} in memory`, ended, `after ${arrived}`);
  }
  const printed = await views.gwctl("usage", "--by", "route", "--since", "1h");
  same("gwctl usage", printed.total as Fields, all);

  // Traffic of the last day, in memory.
  const traffic = (what: string, numbers: Fields, wanted: Sums): void => {
    const sorted = [...wanted.durations].sort((a, b) => a - b);
    for (const [name, share] of PERCENTILES) {
      const exact = sorted[Math.ceil(sorted.length * share) - 1] ?? 0;
      // The access log rounds to microseconds, and the shortest durations share a bin.
      if (!(Math.abs(Number(numbers[name]) - exact) <= Math.max(0.1, exact * 0.05)))
        differs(`${name} of ${what}`, numbers[name], exact);
    }
    for (const name of ["requests", "rejected", "failed", "aborted"] as const)
      differs(`${name} of ${what}`, numbers[name], wanted[name]);
    differs(`tokens of ${what}`, numbers.tokens, wanted.input + wanted.output);
    differs(`cost of ${what}`, nano(numbers.cost), wanted.costNano);
  };
  for (const seconds of [3_600, 86_400]) {
    traffic(`traffic of ${seconds} s`, (await views.json(`/debug/history?seconds=${seconds}`)).total as Fields, all);
    const nodes = (await views.json(`/debug/history?by=node&seconds=${seconds}`)).rows as (Fields & {
      name: string[];
    })[];
    for (const [node, sums] of groupsBy(({ gateway, route = "", backend = "" }) => `${gateway} ${route} ${backend}`)) {
      const numbers = nodes.find(({ name }) => name.join(" ") === node);
      traffic(`node ${node}`, numbers ?? {}, sums);
    }
    const others = { tool: toolOf, user: userOf } as const;
    for (const [group, nameOf] of Object.entries(others)) {
      const report = await views.json(`/debug/history?by=${group}&seconds=${seconds}`);
      const rows = report.rows as (Fields & { name: string[] })[];
      for (const [name, sums] of groupsBy(nameOf))
        if (name !== "") traffic(`${group} ${name}`, rows.find((row) => row.name.join("/") === name) ?? {}, sums);
    }
  }

  // The last minute in gwctl, unless the requests took longer.
  const oldestMs = Math.min(...lines.map(({ time }) => Date.parse(String(time))));
  const [status, top] = [await views.gwctl("status"), await views.gwctl("top", "--once")];
  // The list of problems names every failed and rejected request.
  const problems = status.problems as readonly { readonly level: string; readonly text: string }[];
  for (const [level, outcome] of [
    ["bad", "failed"],
    ["warn", "rejected"],
  ] as const) {
    const counts = problems.flatMap((one) =>
      one.level === level ? [Number(new RegExp(`^(\\d+) requests? .* ${outcome} `).exec(one.text)?.[1] ?? 0)] : [],
    );
    differs(
      `${outcome} in the problems`,
      counts.reduce((sum, count) => sum + count, 0),
      all[outcome],
    );
  }
  if (Date.now() - oldestMs > 60_000) return found;
  for (const [row, rows] of [
    ["gwctl status", [{ ...(status.traffic as Fields), name: "all" }]],
    ["gwctl top", top.route as (Fields & { name: string })[]],
  ] as const)
    for (const [route, wanted] of row === "gwctl top" ? groupsBy(({ route: name }) => name) : [["all", all] as const]) {
      const numbers: Fields = rows.find(({ name }) => name === (route || "(no route)")) ?? {};
      const share = (count: number): number => (row === "gwctl top" ? count / wanted.requests : count);
      differs(`requests of ${route} in ${row}`, numbers.requests, wanted.requests);
      differs(`failed of ${route} in ${row}`, numbers.failed, share(wanted.failed));
      differs(`rejected of ${route} in ${row}`, numbers.rejected, share(wanted.rejected));
      const windowMs = Number((row === "gwctl top" ? top : (status.traffic as Fields)).windowMs);
      const rate = (wanted.requests * 1000) / windowMs;
      if (Math.abs(Number(numbers.perSecond) / rate - 1) > 0.001)
        differs(`rate of ${route} in ${row}`, numbers.perSecond, rate);
    }
  return found;
}

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
const NOT_STORED = new Set(["seq", "isShort", "source", "steps", "upstreamMs", "attempts", "rules", "limits"]);

function recordDifferences(recent: RequestRecord | undefined, stored: RequestRecord | undefined): string[] {
  if (recent === undefined || stored === undefined) return [];
  const names = new Set([...Object.keys(recent), ...Object.keys(stored)]);
  return [...names].flatMap((name) => {
    if (NOT_STORED.has(name)) return [];
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
