/**
 * `gwctl status`: the whole gateway on one screen. Exit code 0 if it serves, also with problems: scripts read `-o json`.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { RequestRecord } from "../../trace/request-record.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError, usageError } from "../terminal/cli-error.ts";
import { paintOf } from "../terminal/paint.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { type Fields, fieldsOf, listOf, numberOf } from "../views/fields.ts";
import { nearlyEmpty } from "../views/limits-view.ts";
import { mcpServersOf } from "../views/mcp-servers.ts";
import { problemsOf, providersOf, type StatusFacts, statusText } from "../views/status-view.ts";
import { trafficOf } from "../views/traffic.ts";
import { openTarget } from "./open-target.ts";

export interface StatusFlags extends TargetFlags {
  readonly output?: string;
}

/** As many as the gateway keeps. */
const RECORDS = 500;

export async function status(name: string | undefined, flags: StatusFlags, terminal: Terminal): Promise<void> {
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const nowMs = terminal.clock.now();
    const facts = await readFacts(admin, nowMs);
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(jsonOf(facts), null, 2)}\n`));
    else terminal.out(statusText(facts, nowMs, paintOf(terminal)));
  } finally {
    admin.close();
  }
}

async function readFacts(admin: AdminClient, nowMs: number): Promise<StatusFacts> {
  const dump = await admin.json<Fields>(ADMIN_PATHS.configDump, "routes");
  const [report, limits, recent, readiness] = await Promise.all([
    admin.json<Fields>(ADMIN_PATHS.tasks, "tasks"),
    admin.json<{ rules: unknown }>(ADMIN_PATHS.limits, "rules"),
    admin.json<{ requests: RequestRecord[] }>(`${ADMIN_PATHS.requests}?limit=${RECORDS}`, "requests"),
    readinessOf(admin),
  ]);
  const upMs = numberOf(fieldsOf(report.process).ageMs);
  const isAll = recent.requests.length < RECORDS;
  return {
    display: admin.display,
    readiness,
    dump,
    report,
    rules: listOf(limits.rules),
    traffic: trafficOf(recent.requests, nowMs, upMs, isAll),
  };
}

/** A gateway that is not ready says so with 503: that is an answer, not a failure. */
async function readinessOf(admin: AdminClient): Promise<string> {
  try {
    return (await admin.get(ADMIN_PATHS.ready)).body.toString().trim();
  } catch (error) {
    const pending = error instanceof CliError ? /not ready, pending: .*/.exec(error.message)?.[0] : undefined;
    if (pending === undefined) throw error;
    return pending;
  }
}

function jsonOf(facts: StatusFacts): Fields {
  const { display, readiness, dump, report, rules, traffic } = facts;
  return {
    address: display,
    readiness,
    version: dump.version,
    process: report.process,
    reload: dump.reload,
    listeners: listOf(dump.listeners).map(({ name, port, protocol }) => ({ name, port, protocol })),
    traffic: { ...traffic, inFlight: report.requestsInFlight },
    mcpServers: mcpServersOf(dump, listOf(report.tasks)),
    llmProviders: providersOf(dump),
    limitsNearEmpty: nearlyEmpty(rules),
    problems: problemsOf(facts),
  };
}
