/**
 * `gwctl mirror report`: how answers of mirrors differ from the backends' own.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { usageError } from "../terminal/cli-error.ts";
import { table } from "../terminal/table.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

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
const MAX_DIFFERENCE_CHARS = 200;

export async function mirrorReport(
  name: string | undefined,
  flags: TargetFlags & { readonly output?: string },
  terminal: Terminal,
): Promise<void> {
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const report = await admin.json<Report>(ADMIN_PATHS.mirrors, "mirrors");
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(report, null, 2)}\n`));
    else if (report.mirrors.length === 0) terminal.err(`no answer of a mirror was compared since ${report.since}\n`);
    else terminal.out(textOf(report));
  } finally {
    admin.close();
  }
}

function textOf({ mirrors }: Report): string {
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
  const head = table([["ROUTE", "MIRROR", "COMPARED", "SAME", "SLOWER", "TIME"], ...rows]);
  if (differences.length === 0) return head;
  const list = table([["ROUTE", "MIRROR", "REQUESTS", "EXAMPLE", "DIFFERENCE"], ...differences], {
    maxLastChars: MAX_DIFFERENCE_CHARS,
  });
  return `${head}\n${list}`;
}
