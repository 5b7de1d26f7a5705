/**
 * `gwctl mcp tools` lists the tools of the MCP servers behind a gateway, with the names that clients see.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { type Cell, SUMMARY_CHARS, table } from "../terminal/table.ts";
import { CliError, paintOf, printable, type Terminal } from "../terminal/terminal.ts";
import type { Inspected, Tool } from "./mcp-command.ts";
import { openTarget } from "./open-target.ts";

const RESPONSE = peerInput("gateway/admin-response");
const TIMEOUT_MS = 90_000;

interface Backend {
  readonly backend: string;
  readonly targets: readonly Inspected[];
}

export interface McpToolsFlags extends TargetFlags {
  readonly server?: string;
  readonly output?: string;
}

export async function mcpTools(name: string | undefined, flags: McpToolsFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const { body } = await admin.post(ADMIN_PATHS.mcpTools, { timeoutMs: TIMEOUT_MS });
    const { backends } = readJson(RESPONSE, body) as { readonly backends: readonly Backend[] };
    const servers = backends.flatMap(({ backend, targets }) => targets.map((server) => ({ backend, ...server })));
    const chosen = servers.filter(({ target }) => flags.server === undefined || target === flags.server);
    if (chosen.length === 0 && servers.length > 0)
      throw new CliError(
        `no MCP server "${flags.server}"; there are ${servers.map(({ target }) => target).join(", ")}`,
      );
    const tools = chosen.flatMap(({ backend, target, tools }) =>
      tools.map((tool) => ({
        tool: tool.shown ?? tool.name,
        server: target,
        backend,
        state: stateOf(tool),
        description: tool.definition.description ?? "",
      })),
    );
    if (isData(format)) printData(tools, format, terminal);
    else if (tools.length > 0) {
      const rows = tools.map(({ tool, server, state, description }): Cell[] => [
        tool,
        server,
        { text: state, tone: state === "listed" ? undefined : "warn" },
        firstLine(String(description)),
      ]);
      const options = { paint: paintOf(terminal), maxLastChars: SUMMARY_CHARS };
      terminal.out(table([["TOOL", "SERVER", "STATE", "DESCRIPTION"], ...rows], options));
    } else if (servers.length === 0) terminal.err("no MCP servers\n");
    const failed = chosen.filter(({ error }) => error !== undefined);
    for (const { target, error } of failed) terminal.err(printable(`${target}: ${error}\n`));
    if (failed.length > 0 && tools.length === 0) throw new CliError("no MCP server returned its tools");
  } finally {
    admin.close();
  }
}

/** The configuration hides a tool, or withholds it because it differs from the lock file. */
function stateOf({ shown, state }: Tool): string {
  if (shown !== null) return "listed";
  return state === "accepted" ? "hidden" : `hidden, ${state}`;
}

function firstLine(text: string): string {
  return text.trim().split("\n", 1)[0] ?? "";
}
