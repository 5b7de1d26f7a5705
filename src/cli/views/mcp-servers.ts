/**
 * Reads the state of a gateway's MCP servers from `/config_dump` and `/debug/tasks`.
 */
import { counted, type Fields, fieldsOf, listOf, numberOf, stringsOf } from "./units.ts";

export interface McpServer {
  readonly backend: string;
  readonly target: string;
  readonly state: "up" | "failing" | "idle";
  readonly sessions: number;
  readonly parkedSessions?: number;
  readonly lastError?: string;
  readonly agoMs?: number;
  readonly stderr: readonly string[];
}

export function mcpServersOf(dump: Fields, tasks: readonly Fields[]): McpServer[] {
  return listOf(dump.backends).flatMap((backend) => {
    const name = String(backend.name);
    const task = tasks.find((one) => one.kind === "mcp backend" && one.name === name);
    return listOf(backend.type === "mcp" ? backend.targets : []).map((one) =>
      mcpServerOf(name, String(one.name), task),
    );
  });
}

export function stateText({
  state,
  sessions,
  parkedSessions = 0,
}: Pick<McpServer, "state" | "sessions" | "parkedSessions">): string {
  const running = `running (${counted(sessions, "session")})`;
  if (state === "failing") return sessions > 0 ? `${running}, failed in others` : "failed";
  if (state === "up") return running;
  return parkedSessions > 0 ? `parked (${counted(parkedSessions, "idle session")})` : "not started";
}

export function mcpServerOf(
  backend: string,
  target: string,
  task: { readonly detail?: unknown } | undefined,
): McpServer {
  const reported = listOf(fieldsOf(task?.detail).servers).find((one) => one.target === target) ?? {};
  const { state, lastError, agoMs } = reported;
  const parkedSessions = numberOf(reported.parkedSessions);
  return {
    backend,
    target,
    state: state === "up" || state === "failing" ? state : "idle",
    sessions: numberOf(reported.sessions),
    ...(parkedSessions > 0 ? { parkedSessions } : {}),
    ...(typeof lastError === "string" ? { lastError } : {}),
    ...(typeof agoMs === "number" ? { agoMs } : {}),
    stderr: typeof lastError === "string" ? stringsOf(reported.stderr) : [],
  };
}
