/**
 * What the open sessions know of an MCP server: whether it is up, and what it last said. A server without a session
 * has no state to speak of.
 */
import { listOf, textOf } from "./dump.ts";
import { tasks, tasksOfKind } from "./tasks.ts";

export interface Living {
  readonly up: number;
  readonly failing: number;
  readonly lastError: string;
  readonly stderr: readonly string[];
}

export function livingOf(backend: string, target: string): Living {
  const own = tasksOfKind(
    tasks.value.value?.tasks ?? [],
    ({ kind, name }) => kind === "mcp backend" && name === backend,
  );
  const seen = tasksOfKind(own, ({ detail }) => Array.isArray(detail?.targets))
    .flatMap(({ detail }) => listOf(detail?.targets))
    .filter((one) => one.target === target);
  const up = seen.filter(({ state }) => state === "up").length;
  return {
    up,
    failing: seen.length - up,
    lastError: seen.map(({ lastError }) => textOf(lastError)).find((text) => text !== "") ?? "",
    stderr: seen.flatMap(({ stderr }) => (Array.isArray(stderr) ? stderr.map(textOf) : [])).slice(-20),
  };
}
