/**
 * `gwctl shadow report`: who would be denied by policies in shadow mode, how often, by which rule.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { MESSAGE_CHARS, table } from "../terminal/table.ts";
import type { Terminal } from "../terminal/terminal.ts";
import { type ReportFlags, showReport } from "./open-target.ts";

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

export function shadowReport(name: string | undefined, flags: ReportFlags, terminal: Terminal): Promise<void> {
  return showReport<Report>(name, flags, terminal, {
    path: ADMIN_PATHS.shadow,
    list: "rules",
    isEmpty: ({ rules }) => rules.length === 0,
    nothing: ({ since }) => `no request would have been denied since ${since}`,
    draw: ({ rules }, paint) =>
      table([["ROUTE", "POLICY", "DENIED", "SUBJECTS", "EXAMPLE", "RULE"], ...rules.map(row)], {
        paint,
        maxLastChars: MESSAGE_CHARS,
      }),
  });
}

function row({ route, policy, denied, subjects, others, examples, rule }: Report["rules"][number]): string[] {
  const named = subjects.slice(0, SHOWN_SUBJECTS).map((one) => `${one.subject} (${one.denied})`);
  const more = subjects.length > SHOWN_SUBJECTS || others > 0 ? [`… ${subjects.length} in all`] : [];
  return [route ?? "-", policy, String(denied), [...named, ...more].join(", "), examples[0]?.id ?? "-", rule];
}
