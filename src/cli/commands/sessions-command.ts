/**
 * `gwctl sessions` lists the open MCP sessions of a gateway, the most recently used last.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { ageText } from "../../base/format.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { type Cell, table } from "../terminal/table.ts";
import { paintOf, type Terminal } from "../terminal/terminal.ts";
import { type Fields, fieldsOf, listOf, numberOf } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

export interface SessionsFlags extends TargetFlags {
  readonly output?: string;
}

export async function sessions(name: string | undefined, flags: SessionsFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const { tasks } = await admin.json<{ tasks: unknown }>(ADMIN_PATHS.tasks, "tasks");
    const found = listOf(tasks)
      .flatMap(sessionsOf)
      .sort((a, b) => numberOf(b.idleMs) - numberOf(a.idleMs));
    if (isData(format)) printData(found, format, terminal);
    else if (found.length === 0) terminal.err("no open MCP sessions\n");
    else terminal.out(table([HEAD, ...found.map(row)], { paint: paintOf(terminal) }));
  } finally {
    admin.close();
  }
}

function sessionsOf(backend: Fields): Fields[] {
  if (backend.kind !== "mcp backend") return [];
  return listOf(backend.children)
    .filter(({ kind }) => kind === "mcp session")
    .map(({ name, ageMs, detail }) => ({ id: name, backend: backend.name, ageMs, ...fieldsOf(detail) }));
}

const HEAD = ["ID", "CLIENT", "USER", "LAST ACTIVITY", "CALLS", "ERRORS", "SERVERS"];

function row(session: Fields): Cell[] {
  const { id, user, owner, calls, errors, targets } = session;
  const { name, version } = fieldsOf(session.client);
  return [
    String(id),
    [name ?? "-", version].filter((part) => part !== undefined).join(" "),
    String(user ?? owner ?? "-"),
    activityText(session),
    countText(calls),
    numberOf(errors) > 0 ? { text: countText(errors), tone: "bad" } : countText(errors),
    listOf(targets)
      .map(({ target, state }) => (state === "up" ? String(target) : `${String(target)} (${String(state)})`))
      .join(", "),
  ];
}

function activityText({ idleMs, pendingCalls }: Fields): string {
  if (numberOf(pendingCalls) > 0) return "now";
  return idleMs === undefined ? "-" : `${ageText(numberOf(idleMs))} ago`;
}

/** Older gateways do not count calls. */
function countText(count: unknown): string {
  return count === undefined ? "-" : String(count);
}
