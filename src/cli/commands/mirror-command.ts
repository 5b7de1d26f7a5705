/**
 * `gwctl mirror report`: how answers of mirrors differ from the backends' own.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { MESSAGE_CHARS, table } from "../terminal/table.ts";
import type { Paint, Terminal } from "../terminal/terminal.ts";
import { type ReportFlags, showReport } from "./open-target.ts";

interface Report {
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
  return showReport<Report>(name, flags, terminal, {
    path: ADMIN_PATHS.mirrors,
    list: "mirrors",
    isEmpty: ({ mirrors }) => mirrors.length === 0,
    nothing: ({ since }) => `no answer of a mirror was compared since ${since}`,
    draw: textOf,
  });
}

function textOf({ mirrors }: Report, paint: Paint): string {
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
