/**
 * Returns the state of an MCP server from the last task report.
 */
import { type McpServer, mcpServerOf } from "../../../src/cli/views/mcp-servers.ts";
import { tasks, tasksOfKind } from "./tasks.ts";

export function serverState(backend: string, target: string): McpServer {
  const [task] = tasksOfKind(
    tasks.value.value?.tasks ?? [],
    ({ kind, name }) => kind === "mcp backend" && name === backend,
  );
  return mcpServerOf(backend, target, task);
}
