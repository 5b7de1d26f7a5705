/**
 * `gwctl policies`: every policy that a running gateway applies, where it stands, and what it says.
 */

import { SUMMARY_CHARS, table } from "../terminal/table.ts";
import { paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { type ConfigFlags, loadDump, type PolicyEntry } from "./config-command.ts";

export async function policies(name: string | undefined, flags: ConfigFlags, terminal: Terminal): Promise<void> {
  const format = flags.output ?? "short";
  if (!["short", "json", "yaml"].includes(format))
    throw usageError(`output format "${format}" is not short, yaml or json`);
  const entries = (await loadDump(name, flags, terminal)).policies ?? [];
  if (format === "json") terminal.out(printable(`${JSON.stringify(entries, null, 2)}\n`));
  else if (format === "yaml") {
    const { yamlText } = await import("../terminal/terminal.ts");
    terminal.out(printable(yamlText(entries)));
  } else if (entries.length === 0) terminal.err("no policies\n");
  else {
    const options = { paint: paintOf(terminal), maxLastChars: SUMMARY_CHARS };
    terminal.out(table([["KIND", "ON", "STATUS", "POLICY"], ...entries.map(row)], options));
  }
}

/** Standalone policies have a target; resources have a name, targetRefs and a status of their own. */
function row(entry: PolicyEntry): string[] {
  if (entry.target !== undefined) {
    const [kind, target] = Object.entries(entry.target)[0] ?? ["", ""];
    return [entry.kind, `${kind}/${target}`, "-", JSON.stringify(entry.policy)];
  }
  const { metadata, spec } = entry as {
    metadata?: { name?: string; namespace?: string };
    spec?: { targetRefs?: readonly { kind: string; name: string }[]; traffic?: unknown };
  };
  const refs = (spec?.targetRefs ?? []).map(({ kind, name }) => `${kind}/${name}`).join(", ");
  return [`${entry.kind}/${metadata?.name ?? "?"}`, refs, conditions(entry), JSON.stringify(spec?.traffic ?? {})];
}

function conditions(entry: PolicyEntry): string {
  const { ancestors = [] } = (entry.status ?? {}) as {
    ancestors?: readonly { conditions?: readonly { type: string; status: string }[] }[];
  };
  const all = ancestors.flatMap(({ conditions: list = [] }) => list.map(({ type, status }) => `${type}=${status}`));
  return [...new Set(all)].join(" ") || "-";
}
