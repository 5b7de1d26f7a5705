/**
 * `gwctl mcp connections`: accounts that users connected at MCP servers with `oauth`; `--test` and `--revoke` take the
 * id of one.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { table } from "../terminal/table.ts";
import { CliError, paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

export interface McpConnectionsFlags extends TargetFlags {
  readonly test?: string;
  readonly revoke?: string;
  readonly output?: string;
}

interface Connection {
  readonly id: string;
  readonly backend: string;
  readonly target: string;
  readonly server: string;
  readonly user: string;
  readonly connectedAt: string;
  readonly expiresAt: string;
  readonly renews: boolean;
}

/** The server and its authorization server may both be asked. */
const TIMEOUT_MS = 60_000;

export async function mcpConnections(
  name: string | undefined,
  flags: McpConnectionsFlags,
  terminal: Terminal,
): Promise<void> {
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  if (flags.test !== undefined && flags.revoke !== undefined) throw usageError("use only one of --test and --revoke");
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const id = flags.test ?? flags.revoke;
    if (id !== undefined) {
      const action = flags.test === undefined ? "revoke" : "test";
      const body = JSON.stringify({ action, id });
      const answer = await admin.post(ADMIN_PATHS.mcpConnections, {
        body,
        timeoutMs: TIMEOUT_MS,
        what: "MCP connections",
      });
      const { ok, reason } = JSON.parse(answer.body.toString()) as { ok: boolean; reason: string };
      if (!ok) throw new CliError(`${id}: ${reason}`);
      terminal.out(printable(`${id}: ${action === "revoke" ? "revoked: " : ""}${reason}\n`));
      return;
    }
    const found = await admin.json<{ connections: readonly Connection[] }>(ADMIN_PATHS.mcpConnections, "connections");
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(found.connections, null, 2)}\n`));
    else if (found.connections.length === 0) terminal.err("no user has connected an account\n");
    else terminal.out(told(found.connections, terminal));
  } finally {
    admin.close();
  }
}

function told(connections: readonly Connection[], terminal: Terminal): string {
  const rows = connections.map(({ id, user, target, server, connectedAt, expiresAt, renews }) => [
    id,
    user,
    target,
    server,
    connectedAt.slice(0, 16).replace("T", " "),
    renews ? "renewed in time" : `until ${expiresAt.slice(0, 16).replace("T", " ")}`,
  ]);
  return table([["ID", "USER", "SERVER", "HOST", "CONNECTED", "TOKEN"], ...rows], { paint: paintOf(terminal) });
}
