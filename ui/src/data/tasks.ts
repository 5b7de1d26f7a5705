/**
 * Polls the task tree of the process (`/debug/tasks`).
 */
import { getJson } from "./api.ts";
import { createPoll } from "./poll.ts";

export interface Task {
  readonly kind: string;
  readonly name: string;
  readonly ageMs: number;
  readonly detail?: Readonly<Record<string, unknown>>;
  readonly children?: readonly Task[];
}

export interface Tasks {
  readonly process: { readonly pid: number; readonly ageMs: number; readonly rssBytes: number };
  readonly tasks: readonly Task[];
  readonly requestsInFlight: number;
}

export const tasks = createPoll(() => getJson<Tasks>("debug/tasks"), 5_000);

/** Returns all matching tasks at any depth of the tree. */
export function tasksOfKind(list: readonly Task[], test: (task: Task) => boolean): Task[] {
  return list.flatMap((task) => [...(test(task) ? [task] : []), ...tasksOfKind(task.children ?? [], test)]);
}
