/**
 * What lives in the process: listeners, requests in flight, sessions, child processes, background work.
 */
import { usePoll } from "../../data/poll.ts";
import { type Task, tasks } from "../../data/tasks.ts";
import { pageHref } from "../../frame/router.ts";
import { ageText, bytesText, visible } from "../../parts/format.ts";
import { Panel, Skeleton } from "../../parts/panel.tsx";

export function TaskTree() {
  const report = usePoll(tasks);
  return (
    <Panel
      title="Tasks"
      end={
        report ? (
          <span class="muted">
            pid {report.process.pid} · up {ageText(report.process.ageMs)} · {bytesText(report.process.rssBytes)}
          </span>
        ) : null
      }
    >
      {report ? <Branch list={report.tasks} /> : <Skeleton />}
    </Panel>
  );
}

export function Branch({ list }: { list: readonly Task[] }) {
  return (
    <ul class="tree">
      {list.map((task, i) => (
        <li key={`${task.kind} ${task.name} ${i}`}>
          <div class="row">
            <span class="muted">{task.kind}</span>
            <TaskName task={task} />
            <span class="muted">{ageText(task.ageMs)}</span>
            {Object.entries(task.detail ?? {})
              .filter(([, value]) => value !== null && value !== undefined)
              .map(([key, value]) => (
                <span key={key} class="muted small">
                  {key} <span class="mono">{detailText(key, value)}</span>
                </span>
              ))}
          </div>
          {task.children && task.children.length > 0 ? <Branch list={task.children} /> : null}
        </li>
      ))}
    </ul>
  );
}

function TaskName({ task }: { task: Task }) {
  const id = task.kind === "request" ? task.detail?.id : undefined;
  return (
    <span class="mono">
      {typeof id === "string" ? <a href={pageHref("requests", { id })}>{visible(task.name)}</a> : visible(task.name)}
    </span>
  );
}

function detailText(key: string, value: unknown): string {
  if (key.endsWith("Bytes") && typeof value === "number") return bytesText(value);
  return visible(typeof value === "object" ? JSON.stringify(value) : String(value));
}
