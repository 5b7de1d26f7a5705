/**
 * `gwctl shadow report` lists requests that policies in shadow mode would have denied, by rule and subject. `gwctl
 * mirror report` lists how responses of mirrors differ from those of the backends.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { MESSAGE_CHARS, table } from "../terminal/table.ts";
import type { Paint, Terminal } from "../terminal/terminal.ts";
import { type ReportFlags, showReport } from "./open-target.ts";

interface ShadowReport {
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
  return showReport<ShadowReport>(name, flags, terminal, {
    path: ADMIN_PATHS.shadow,
    list: "rules",
    isEmpty: ({ rules }) => rules.length === 0,
    nothing: ({ since }) => `no request would have been denied since ${since}`,
    draw: ({ rules }, paint) =>
      table([["ROUTE", "POLICY", "DENIED", "SUBJECTS", "EXAMPLE", "RULE"], ...rules.map(shadowRow)], {
        paint,
        maxLastChars: MESSAGE_CHARS,
      }),
  });
}

function shadowRow({
  route,
  policy,
  denied,
  subjects,
  others,
  examples,
  rule,
}: ShadowReport["rules"][number]): string[] {
  const named = subjects.slice(0, SHOWN_SUBJECTS).map((one) => `${one.subject} (${one.denied})`);
  const more = subjects.length > SHOWN_SUBJECTS || others > 0 ? [`… ${subjects.length} in all`] : [];
  return [route ?? "-", policy, String(denied), [...named, ...more].join(", "), examples[0]?.id ?? "-", rule];
}

interface MirrorReport {
  readonly since: string;
  readonly mirrors: readonly {
    readonly route: string | null;
    readonly mirror: string;
    readonly compared: number;
    readonly same: number;
    readonly slower: number;
    readonly backendMs: number;
    readonly mirrorMs: number;
    readonly differences: readonly {
      readonly difference: string;
      readonly requests: number;
      readonly examples: readonly { readonly id: string }[];
    }[];
  }[];
}

const SHOWN_DIFFERENCES = 20;

export function mirrorReport(name: string | undefined, flags: ReportFlags, terminal: Terminal): Promise<void> {
  return showReport<MirrorReport>(name, flags, terminal, {
    path: ADMIN_PATHS.mirrors,
    list: "mirrors",
    isEmpty: ({ mirrors }) => mirrors.length === 0,
    nothing: ({ since }) => `no response of a mirror was compared since ${since}`,
    draw: mirrorTables,
  });
}

function mirrorTables({ mirrors }: MirrorReport, paint: Paint): string {
  const rows = mirrors.map(({ route, mirror, compared, same, slower, backendMs, mirrorMs }) => [
    route ?? "-",
    mirror,
    String(compared),
    String(same),
    String(slower),
    `${backendMs} → ${mirrorMs} ms`,
  ]);
  const differences = mirrors.flatMap(({ route, mirror, differences: found }) =>
    found
      .slice(0, SHOWN_DIFFERENCES)
      .map(({ requests, examples, difference }) => [
        route ?? "-",
        mirror,
        String(requests),
        examples[0]?.id ?? "-",
        difference,
      ]),
  );
  const head = table([["ROUTE", "MIRROR", "COMPARED", "SAME", "SLOWER", "TIME"], ...rows], { paint });
  if (differences.length === 0) return head;
  const list = table([["ROUTE", "MIRROR", "REQUESTS", "EXAMPLE", "DIFFERENCE"], ...differences], {
    paint,
    maxLastChars: MESSAGE_CHARS,
  });
  return `${head}\n${list}`;
}
