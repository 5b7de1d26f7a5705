/**
 * `gwctl shadow report`: who would be denied by policies in shadow mode, how often, by which rule.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { usageError } from "../terminal/cli-error.ts";
import { table } from "../terminal/table.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

interface Report {
  readonly since: string;
  readonly rules: readonly {
    readonly route: string | null;
    readonly policy: string;
    readonly rule: string;
    readonly denied: number;
    readonly subjects: readonly { readonly subject: string; readonly denied: number }[];
    readonly others: number;
    readonly examples: readonly { readonly id: string }[];
  }[];
}

const SHOWN_SUBJECTS = 5;
const MAX_RULE_CHARS = 200;

export async function shadowReport(
  name: string | undefined,
  flags: TargetFlags & { readonly output?: string },
  terminal: Terminal,
): Promise<void> {
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const report = await admin.json<Report>(ADMIN_PATHS.shadow, "rules");
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(report, null, 2)}\n`));
    else if (report.rules.length === 0) terminal.err(`no request would have been denied since ${report.since}\n`);
    else
      terminal.out(
        table([["ROUTE", "POLICY", "DENIED", "SUBJECTS", "EXAMPLE", "RULE"], ...report.rules.map(row)], {
          maxLastChars: MAX_RULE_CHARS,
        }),
      );
  } finally {
    admin.close();
  }
}

function row({ route, policy, denied, subjects, others, examples, rule }: Report["rules"][number]): string[] {
  const named = subjects.slice(0, SHOWN_SUBJECTS).map((one) => `${one.subject} (${one.denied})`);
  const more = subjects.length > SHOWN_SUBJECTS || others > 0 ? [`… ${subjects.length} in all`] : [];
  return [route ?? "-", policy, String(denied), [...named, ...more].join(", "), examples[0]?.id ?? "-", rule];
}
