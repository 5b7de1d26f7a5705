/**
 * The state of the MCP servers behind a gateway, from its configuration and its tasks. If no session has reached a
 * server, only its last failure is available.
 */
import { type Fields, fieldsOf, listOf, stringsOf } from "./units.ts";

export interface McpServer {
  readonly backend: string;
  readonly target: string;
  readonly state: "up" | "failing" | "idle";
  /** The number of sessions in which the server is up. */
  readonly sessions: number;
  readonly lastError?: string;
  readonly agoMs?: number;
  readonly stderr: readonly string[];
}

export function mcpServersOf(dump: Fields, tasks: readonly Fields[]): McpServer[] {
  return listOf(dump.backends).flatMap((backend) => {
    const name = String(backend.name);
    const living = tasks.find((task) => task.kind === "mcp backend" && task.name === name);
    return listOf(backend.type === "mcp" ? backend.targets : []).map((one) => stateOf(name, String(one.name), living));
  });
}

export function stateText({ state, sessions }: McpServer): string {
  if (state === "up") return `running (${sessions} ${sessions === 1 ? "session" : "sessions"})`;
  return state === "failing" ? "failed" : "not started";
}

function stateOf(backend: string, target: string, living: Fields | undefined): McpServer {
  const links = listOf(living?.children).flatMap((task) => linksOf(task, target));
  const sessions = links.filter(({ state }) => state === "up").length;
  const down = links.find(({ state }) => state === "down");
  // Failures recorded by the backend, because a session that failed to open has no task.
  const failure = listOf(fieldsOf(living?.detail).failures).find((one) => one.target === target);
  const isFailing = down !== undefined || (sessions === 0 && failure !== undefined && failure.isOver !== true);
  const lastError = down?.lastError ?? failure?.reason;
  return {
    backend,
    target,
    state: isFailing ? "failing" : sessions > 0 ? "up" : "idle",
    sessions,
    ...(typeof lastError === "string" ? { lastError } : {}),
    ...(typeof failure?.agoMs === "number" ? { agoMs: failure.agoMs } : {}),
    stderr: stringsOf((down ?? failure)?.stderr),
  };
}

/** Connections to the target, without slots of shared servers, which have no state of their own. */
function linksOf(task: Fields, target: string): Fields[] {
  const detail = fieldsOf(task.detail);
  return [detail, ...listOf(detail.targets)]
    .filter((link) => link.target === target && typeof link.state === "string")
    .concat(listOf(task.children).flatMap((child) => linksOf(child, target)));
}
