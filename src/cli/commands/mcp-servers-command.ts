/**
 * `gwctl mcp servers` lists the MCP servers behind a gateway, with the last error and stderr output of failed
 * servers.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { ageText } from "../../base/format.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { type Cell, MESSAGE_CHARS, table } from "../terminal/table.ts";
import { type Paint, paintOf, printable, type Terminal } from "../terminal/terminal.ts";
import { type McpServer, mcpServersOf, stateText } from "../views/mcp-servers.ts";
import type { Fields } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

export interface ServersFlags extends TargetFlags {
  readonly output?: string;
}

export async function servers(name: string | undefined, flags: ServersFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const dump = await admin.json<Fields>(ADMIN_PATHS.configDump, "routes");
    const report = await admin.json<{ tasks: readonly Fields[] }>(ADMIN_PATHS.tasks, "tasks");
    const found = mcpServersOf(dump, report.tasks);
    if (isData(format)) printData(found, format, terminal);
    else if (found.length === 0) terminal.err("no MCP servers\n");
    else terminal.out(serversText(found, paintOf(terminal)));
  } finally {
    admin.close();
  }
}

const TONES = { up: "good", failing: "bad", idle: "dim" } as const;

function serversText(found: readonly McpServer[], paint: Paint): string {
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
