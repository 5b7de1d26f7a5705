/**
 * Shows the tasks of the process: listeners, requests in flight, sessions, child processes, and background work.
 */

import { ageText, bytesText } from "../../../../src/base/format.ts";
import { usePoll } from "../../data/poll.ts";
import { type Task, tasks } from "../../data/tasks.ts";
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Panel, Skeleton } from "../../parts/panel.tsx";
import { taskRows } from "./task-rows.ts";

const INDENT_PX = 16;

export function TaskTable() {
  const report = usePoll(tasks);
  return (
    <Panel
      title="Tasks"
      end={
        report ? (
          <span class="muted">
            PID {report.process.pid} · uptime {ageText(report.process.ageMs)} · {bytesText(report.process.rssBytes)}
          </span>
        ) : null
      }
      flush
    >
      {report ? <TaskRows list={report.tasks} /> : <Skeleton />}
    </Panel>
  );
}

export function TaskRows({ list }: { list: readonly Task[] }) {
  const rows = taskRows(list);
  const hasMemory = rows.some(({ rssBytes }) => rssBytes !== undefined);
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Task</th>
          <th scope="col">Kind</th>
          <th scope="col" class="number">
            Age
          </th>
          {hasMemory ? (
            <th scope="col" class="number">
              Memory
            </th>
          ) : null}
          <th scope="col">Details</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ depth, kind, name, ageMs, rssBytes, requestId, details }, i) => (
          <tr key={`${i} ${kind} ${name}`}>
            <td class="mono" style={{ paddingLeft: `${8 + depth * INDENT_PX}px` }}>
              {requestId === undefined ? (
                visible(name)
              ) : (
                <a href={pageHref("requests", { id: requestId })}>{visible(name)}</a>
              )}
            </td>
            <td class="muted nowrap">{visible(kind)}</td>
            <td class="number">{ageMs === undefined ? "" : ageText(ageMs)}</td>
            {hasMemory ? <td class="number">{rssBytes === undefined ? "" : bytesText(rssBytes)}</td> : null}
            <td class="muted wrap">{details}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
