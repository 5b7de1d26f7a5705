/**
 * `/debug/tasks` (spec 4.2) returns the task tree of the process: listeners with their connections and requests, MCP
 * sessions, child processes with PID, age, and memory, and background loops.
 */
import { readFile } from "node:fs/promises";
import { processResidentBytes } from "../../base/process-memory.ts";
import type { TaskReport, Tasks } from "../../base/tasks.ts";
import type { InFlightReport, RecentRequests } from "../../record/recent-requests.ts";
import { type AdminEndpoint, jsonResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const MAX_REQUESTS = 200;

export function tasksEndpoint(tasks: Tasks, recent: RecentRequests, uptimeMs: () => number): AdminEndpoint {
  return {
    path: ADMIN_PATHS.tasks,
    doc: "Tasks in the process: listeners, requests in flight, MCP sessions, child processes, background work.",
    async GET() {
      const requests = recent.inFlight(MAX_REQUESTS);
      const report = tasks.report().map((task) => withRequests(task, requests));
      return jsonResponse({
        process: { pid: process.pid, ageMs: Math.round(uptimeMs()), rssBytes: processResidentBytes() },
        requestsInFlight: recent.counts.inFlight,
        tasks: await Promise.all(report.map(withMemory)),
      });
    },
  };
}

export function countTasks(
  reports: readonly TaskReport[],
  counts: Record<string, number> = {},
): Record<string, number> {
  for (const { kind, children } of reports) {
    counts[kind] = (counts[kind] ?? 0) + 1;
    if (children) countTasks(children, counts);
  }
  return counts;
}

/** Requests are listed under their listener and not registered as tasks, to keep requests cheap. */
function withRequests(task: TaskReport, requests: readonly InFlightReport[]): TaskReport {
  const own = task.kind === "listener" ? requests.filter(({ listener }) => listener === task.name) : [];
  if (own.length === 0) return task;
  const children = own.map(({ id, ageMs, method, path, route, backend, status }) => ({
    kind: "request",
    name: `${method} ${path}`,
    ageMs,
    detail: { id, route, backend, status },
  }));
  return { ...task, children: [...(task.children ?? []), ...children] };
}

async function withMemory(task: TaskReport): Promise<TaskReport> {
  const pid = task.detail?.pid;
  const rssBytes = typeof pid === "number" ? await residentBytes(pid) : undefined;
  return {
    ...task,
    ...(rssBytes === undefined ? {} : { detail: { ...task.detail, rssBytes } }),
    ...(task.children ? { children: await Promise.all(task.children.map(withMemory)) } : {}),
  };
}

async function residentBytes(pid: number): Promise<number | undefined> {
  try {
    const kilobytes = /^VmRSS:\s+(\d+) kB/m.exec(await readFile(`/proc/${pid}/status`, "latin1"))?.[1];
    return kilobytes === undefined ? undefined : Number(kilobytes) * 1024;
  } catch {
    return undefined;
  }
}
