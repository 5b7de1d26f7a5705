/**
 * Tracks the long-lived resources of the process (listeners, sessions, child processes, background loops) as a tree.
 * Code that opens a long-lived resource registers it, so that `/debug/tasks` and leak tests can list it.
 */
import type { Clock } from "./clock.ts";

export interface Task {
  start(kind: string, name: string, detail?: () => Record<string, unknown>): Task;
  end(): void;
}

export interface TaskReport {
  kind: string;
  name: string;
  ageMs: number;
  detail?: Record<string, unknown>;
  children?: TaskReport[];
}

export interface Tasks {
  start(kind: string, name: string, detail?: () => Record<string, unknown>): Task;
  report(): TaskReport[];
}

interface Node {
  kind: string;
  name: string;
  sinceMs: number;
  detail: (() => Record<string, unknown>) | undefined;
  children: Set<Node>;
}

export function createTasks(clock: Clock): Tasks {
  const roots = new Set<Node>();

  function startIn(siblings: Set<Node>, kind: string, name: string, detail?: () => Record<string, unknown>): Task {
    const node: Node = { kind, name, sinceMs: clock.monotonicMs(), detail, children: new Set() };
    siblings.add(node);
    return {
      start: (childKind, childName, childDetail) => startIn(node.children, childKind, childName, childDetail),
      end: () => {
        siblings.delete(node);
      },
    };
  }

  function report(nodes: Set<Node>): TaskReport[] {
    return [...nodes].map((node) => ({
      kind: node.kind,
      name: node.name,
      ageMs: Math.round(clock.monotonicMs() - node.sinceMs),
      ...(node.detail ? { detail: node.detail() } : {}),
      ...(node.children.size > 0 ? { children: report(node.children) } : {}),
    }));
  }

  return {
    start: (kind, name, detail) => startIn(roots, kind, name, detail),
    report: () => report(roots),
  };
}
