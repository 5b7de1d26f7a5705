/**
 * `gwctl status` shows the gateway on one screen. Problems of the gateway do not change the exit code; scripts can
 * read them with `-o json`.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { ageText, bytesText, dollarText, durationText, percentText, rateText } from "../../base/format.ts";
import { shareOf, type TrafficRows } from "../../record/trace/traffic-numbers.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { type Cell, MESSAGE_CHARS, table, wrapWords } from "../terminal/table.ts";
import { CliError, type Paint, paintOf, printable, type Terminal, type Tone } from "../terminal/terminal.ts";
import { nearlyEmpty } from "../views/limit-buckets.ts";
import { type LlmProvider, llmProvidersOf } from "../views/llm-providers.ts";
import { type McpServer, mcpServersOf, stateText } from "../views/mcp-servers.ts";
import { PROBLEM_SECONDS, type Problem, problemsOf } from "../views/problems.ts";
import { readTraffic, type Traffic, windowText } from "../views/traffic.ts";
import { counted, type Fields, fieldsOf, listOf, numberOf, stringsOf } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

export interface StatusFlags extends TargetFlags {
  readonly output?: string;
}

export async function status(name: string | undefined, flags: StatusFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const nowMs = terminal.clock.now();
    const data = await readStatus(admin);
    if (isData(format)) printData(jsonOf(data), format, terminal);
    else terminal.out(statusText(data, nowMs, paintOf(terminal)));
  } finally {
    admin.close();
  }
}

async function readStatus(admin: AdminClient): Promise<StatusData> {
  const dump = await admin.json<Fields>(ADMIN_PATHS.configDump, "routes");
  const [report, limits, traffic, errors, readiness] = await Promise.all([
    admin.json<Fields>(ADMIN_PATHS.tasks, "tasks"),
    admin.json<{ rules: unknown }>(ADMIN_PATHS.limits, "rules"),
    readTraffic(admin),
    admin.json<TrafficRows>(`${ADMIN_PATHS.history}?by=error&seconds=${PROBLEM_SECONDS}`, "rows"),
    readinessOf(admin),
  ]);
  return {
    display: admin.display,
    readiness,
    dump,
    report,
    rules: listOf(limits.rules),
    traffic,
    errors,
  };
}

function problemsIn(data: StatusData): Problem[] {
  return problemsOf({ ...data, tasks: listOf(data.report.tasks) });
}

async function readinessOf(admin: AdminClient): Promise<string> {
  try {
    return (await admin.get(ADMIN_PATHS.ready)).body.toString().trim();
  } catch (error) {
    const pending = error instanceof CliError ? /not ready, pending: .*/.exec(error.message)?.[0] : undefined;
    if (pending === undefined) throw error;
    return pending;
  }
}

function jsonOf(data: StatusData): Fields {
  const { display, readiness, dump, report, rules, traffic } = data;
  return {
    address: display,
    readiness,
    version: dump.version,
    process: report.process,
    reload: dump.reload,
    listeners: listOf(dump.listeners).map(({ name, port, protocol }) => ({ name, port, protocol })),
    traffic: { ...traffic, inFlight: report.requestsInFlight },
    mcpServers: mcpServersOf(dump, listOf(report.tasks)),
    llmProviders: llmProvidersOf(dump),
    limitsNearEmpty: nearlyEmpty(rules),
    problems: problemsIn(data),
  };
}

const MAX_ROWS = 8;
const MAX_PROBLEMS = 20;

export interface StatusData {
  readonly display: string;
  /** Either `ready`, or `not ready, pending: …`. */
  readonly readiness: string;
  readonly dump: Fields;
  readonly report: Fields;
  readonly rules: readonly Fields[];
  readonly traffic: Traffic;
  /** Failed and rejected requests by route and code. */
  readonly errors: TrafficRows;
}

export function statusText(data: StatusData, nowMs: number, paint: Paint): string {
  const problems = problemsIn(data);
  const parts = [headText(data, nowMs, paint), probledurationText(problems, paint)];
  const servers = mcpServersOf(data.dump, listOf(data.report.tasks));
  if (servers.length > 0) parts.push(serversText(servers, paint));
  const providers = llmProvidersOf(data.dump);
  if (providers.length > 0) parts.push(providersText(providers, paint));
  const low = nearlyEmpty(data.rules);
  if (low.length > 0)
    parts.push(
      section("Limits near empty", low, "gwctl limits", paint, ({ owner, key, remaining, limit, resetSeconds }) => [
        owner,
        key,
        { text: `${remaining} of ${limit} left`, tone: remaining <= 0 ? "bad" : "warn" },
        `resets in ${ageText(resetSeconds * 1000)}`,
      ]),
    );
  return parts.join("\n");
}

function headText({ display, readiness, dump, report, traffic }: StatusData, nowMs: number, paint: Paint): string {
  const process = fieldsOf(report.process);
  const rows: Cell[][] = [
    [label("Gateway"), { text: `${display}, version ${String(dump.version)}`, tone: "bold" }],
    [
      label("State"),
      { text: readiness === "ready" ? "serving" : readiness, tone: readiness === "ready" ? "good" : "bad" },
    ],
    [
      label("Uptime"),
      `${ageText(numberOf(process.ageMs))}, ${bytesText(numberOf(process.rssBytes))}, process ${numberOf(process.pid)}`,
    ],
    [label("Configuration"), configurationCell(fieldsOf(dump.reload), nowMs)],
    [label("Listeners"), listenersText(dump)],
    [label("Traffic"), trafficText(traffic, numberOf(report.requestsInFlight))],
    [label("Errors"), errorsCell(traffic)],
  ];
  if (traffic.tokens > 0) {
    const cost = traffic.cost > 0 ? `, ${dollarText(traffic.cost)}` : "";
    rows.push([label("Tokens"), `${traffic.tokens}${cost} in the last ${windowText(traffic)}`]);
  }
  return table(rows, { paint, maxLastChars: MESSAGE_CHARS });
}

function label(text: string): Cell {
  return { text, tone: "dim" };
}

function configurationCell(reload: Fields, nowMs: number): Cell {
  const loaded = Date.parse(String(reload.loadedAt));
  const age = Number.isNaN(loaded) ? "" : `, loaded ${ageText(nowMs - loaded)} ago`;
  const text = `generation ${numberOf(reload.generation)}${age} from ${stringsOf(reload.sources).join(", ")}`;
  const isRejected = fieldsOf(reload.refused).problems !== undefined;
  return isRejected ? { text: `${text}; last reload rejected`, tone: "bad" } : text;
}

function listenersText(dump: Fields): string {
  const listeners = listOf(dump.listeners);
  const shown = listeners.slice(0, MAX_ROWS).map(({ name, port, protocol, routes }) => {
    const count = Array.isArray(routes) ? routes.length : 0;
    return `${String(name)} ${String(protocol)} :${String(port)} (${counted(count, "route")})`;
  });
  const hidden = listeners.length - shown.length;
  return `${shown.join(", ") || "none"}${hidden > 0 ? `, and ${hidden} more` : ""}`;
}

function trafficText(traffic: Traffic, inFlight: number): string {
  const rate = `${counted(traffic.requests, "request")}, ${rateText(traffic.perSecond)}`;
  const { p50Ms, p95Ms } = traffic;
  const times = p50Ms === null || p95Ms === null ? "" : `, p50 ${durationText(p50Ms)}, p95 ${durationText(p95Ms)}`;
  return `${rate} (last ${windowText(traffic)})${times}, ${inFlight} in flight`;
}

function errorsCell(traffic: Traffic): Cell {
  const { failed, rejected, requests } = traffic;
  if (failed + rejected === 0) return "none";
  const share = percentText(shareOf("failed", traffic));
  const tone: Tone = failed > 0 ? "bad" : "warn";
  return { text: `${failed} failed (${share}), ${rejected} rejected of ${counted(requests, "request")}`, tone };
}

function probledurationText(problems: readonly Problem[], paint: Paint): string {
  if (problems.length === 0) return `${paint("No problems.", "good")}\n`;
  const lines = problems.slice(0, MAX_PROBLEMS).map(({ level, text }) => {
    const mark = level === "bad" ? "✗" : "!";
    const width = paint.columns === undefined ? Number.POSITIVE_INFINITY : paint.columns - 4;
    const pieces = printable(text)
      .split("\n")
      .flatMap((line) => wrapWords(line, width));
    return `  ${paint(mark, level)} ${pieces.join("\n    ")}\n`;
  });
  const hidden = problems.length - lines.length;
  const more = hidden > 0 ? `  … ${hidden} more: gwctl status -o yaml\n` : "";
  return `${paint(counted(problems.length, "problem"), problems[0]?.level)}\n${lines.join("")}${more}`;
}

const TONES = { up: "good", failing: "bad", idle: "dim" } as const;

function serversText(servers: readonly McpServer[], paint: Paint): string {
  return section("MCP servers", servers, "gwctl mcp servers", paint, (server) => [
    server.target,
    { text: stateText(server), tone: TONES[server.state] },
    server.backend,
  ]);
}

function providersText(providers: readonly LlmProvider[], paint: Paint): string {
  return section(
    "LLM providers",
    providers,
    "gwctl proxy config backends",
    paint,
    ({ name, provider, state, text }) => [name, provider, { text, tone: state === "ok" ? "good" : "bad" }],
  );
}

function section<Item>(
  title: string,
  items: readonly Item[],
  command: string,
  paint: Paint,
  row: (item: Item) => Cell[],
): string {
  const hidden = items.length - MAX_ROWS;
  const rows = items.slice(0, MAX_ROWS).map((item) => ["", ...row(item)]);
  return `${paint(title, "bold")}\n${table(rows, { paint })}${hidden > 0 ? `  … ${hidden} more: ${command}\n` : ""}`;
}
