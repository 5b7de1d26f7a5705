/**
 * Returns the state of an MCP server from the last task report.
 */
import { type TargetState, targetState } from "./target-state.ts";
import { tasks, tasksOfKind } from "./tasks.ts";

export function livingOf(backend: string, target: string): TargetState {
  const [own] = tasksOfKind(
    tasks.value.value?.tasks ?? [],
    ({ kind, name }) => kind === "mcp backend" && name === backend,
  );
  return targetState(own, target);
}
