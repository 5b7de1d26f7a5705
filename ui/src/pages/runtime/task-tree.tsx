/**
 * Shows the task tree of the process: listeners, requests in flight, sessions, child processes, and background work.
 */
import { usePoll } from "../../data/poll.ts";
import { type Task, tasks } from "../../data/tasks.ts";
import { pageHref } from "../../frame/router.ts";
import { ageText, bytesText, durationText, visible } from "../../parts/format.ts";
import { Panel, Skeleton } from "../../parts/panel.tsx";

export function TaskTree() {
  const report = usePoll(tasks);
  return (
    <Panel
      title="Tasks"
      end={
        report ? (
          <span class="muted">
            pid {report.process.pid} · uptime {ageText(report.process.ageMs)} · {bytesText(report.process.rssBytes)}
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
            <Details detail={task.detail ?? {}} />
          </div>
          <InnerLists detail={task.detail ?? {}} />
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

type Detail = Readonly<Record<string, unknown>>;

function Details({ detail }: { detail: Detail }) {
  return (
    <>
      {Object.entries(detail)
        .filter(([, value]) => value !== null && value !== undefined && !Array.isArray(value))
        .map(([key, value]) => (
          <span key={key} class="muted small">
            {key.replace(/(?:Bytes|Ms)$/, "")} <span class="mono">{detailText(key, value)}</span>
          </span>
        ))}
    </>
  );
}

/** Shows lists in the details, such as the targets of a session. */
function InnerLists({ detail }: { detail: Detail }) {
  const lists = Object.entries(detail).filter((entry): entry is [string, unknown[]] => Array.isArray(entry[1]));
  return (
    <>
      {lists.map(([key, items]) => (
        <ul class="tree" key={key}>
          {items.map((item, i) => (
            <li key={`${key} ${i}`} class="row">
              {typeof item === "object" && item !== null ? (
                <Details detail={item as Detail} />
              ) : (
                <span class="mono">{visible(String(item))}</span>
              )}
            </li>
          ))}
        </ul>
      ))}
    </>
  );
}

function detailText(key: string, value: unknown): string {
  if (key.endsWith("Bytes") && typeof value === "number") return bytesText(value);
  if (key.endsWith("Ms") && typeof value === "number") return durationText(value);
  return visible(typeof value === "object" ? JSON.stringify(value) : String(value));
}
