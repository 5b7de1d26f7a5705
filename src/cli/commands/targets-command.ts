/**
 * `gwctl proxy targets`: lists the MCP servers behind a gateway, with the last error and stderr output of failed
 * servers.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { type Cell, MESSAGE_CHARS, table } from "../terminal/table.ts";
import { type Paint, paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { type McpServer, mcpServersOf, stateText } from "../views/mcp-servers.ts";
import { ageText, type Fields } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

export interface TargetsFlags extends TargetFlags {
  readonly output?: string;
}

export async function targets(name: string | undefined, flags: TargetsFlags, terminal: Terminal): Promise<void> {
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const dump = await admin.json<Fields>(ADMIN_PATHS.configDump, "routes");
    const report = await admin.json<{ tasks: readonly Fields[] }>(ADMIN_PATHS.tasks, "tasks");
    const found = mcpServersOf(dump, report.tasks);
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(found, null, 2)}\n`));
    else if (found.length === 0) terminal.err("no MCP servers\n");
    else terminal.out(targetTable(found, paintOf(terminal)));
  } finally {
    admin.close();
  }
}

const TONES = { up: "good", failing: "bad", idle: "dim" } as const;

function targetTable(found: readonly McpServer[], paint: Paint): string {
  const rows = found.map((server): Cell[] => {
    const { backend, target, state, lastError, agoMs } = server;
    const when = agoMs === undefined ? "" : `${ageText(agoMs)} ago: `;
    const error = lastError === undefined ? "" : `${when}${lastError}`;
    return [target, backend, { text: stateText(server), tone: TONES[state] }, error];
  });
  const words = found
    .filter(({ state, stderr }) => state === "failing" && stderr.length > 0)
    .map(({ target, stderr }) => `\nstderr of ${target}:\n${stderr.map((line) => `  ${line}\n`).join("")}`);
  const servers = table([["SERVER", "BACKEND", "STATE", "LAST ERROR"], ...rows], {
    paint,
    maxLastChars: MESSAGE_CHARS,
  });
  return `${servers}${printable(words.join(""))}`;
}
