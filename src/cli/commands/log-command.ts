/**
 * `gwctl proxy log`: reads or sets the log filter of a running gateway, until its next start.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

/** How an answer begins (spec 4.2). */
const CURRENT = "current log level is ";

export interface LogFlags extends TargetFlags {
  readonly level?: string;
  readonly set?: readonly string[];
}

export async function log(name: string | undefined, flags: LogFlags, terminal: Terminal): Promise<void> {
  if (flags.level !== undefined && flags.set !== undefined)
    throw usageError("use either --level (replaces the filter) or --set (changes parts of it)");
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const before = (await admin.get(ADMIN_PATHS.logging)).body.toString();
    if (!before.startsWith(CURRENT))
      throw new CliError(`${admin.display} did not return its log level: is that a gateway's admin interface?`);
    const level = flags.level ?? (flags.set === undefined ? undefined : merged(before, flags.set));
    if (level === undefined) terminal.out(printable(before));
    else {
      const query = new URLSearchParams({ level });
      const answer = await admin.post(`${ADMIN_PATHS.logging}?${query}`, { what: `log filter ${level}` });
      terminal.out(printable(answer.body.toString()));
    }
  } finally {
    admin.close();
  }
}

/** The filter as it is, with these modules changed: `info,mcp=trace` and `--set admin=debug`. */
function merged(answer: string, changes: readonly string[]): string {
  const current = answer.slice(CURRENT.length).trim().split(",");
  const clauses = new Map(current.map((clause) => [clause.includes("=") ? clause.split("=", 1)[0] : "", clause]));
  for (const change of changes.flatMap((text) => text.split(","))) {
    const equals = change.indexOf("=");
    if (equals < 1) throw usageError(`--set ${change}: expected module=level, for example --set mcp=trace`);
    clauses.set(change.slice(0, equals), change);
  }
  return [...clauses.values()].join(",");
}
