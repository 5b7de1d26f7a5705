/**
 * Lists open MCP sessions, with a button to end them.
 */
import { mayOperate } from "../../data/about.ts";
import { postJson } from "../../data/api.ts";
import { listOf } from "../../data/dump.ts";
import { usePoll } from "../../data/poll.ts";
import { type Task, tasks, tasksOfKind } from "../../data/tasks.ts";
import { Fold } from "../../parts/fold.tsx";
import { ageText, visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { SureButton } from "../../parts/sure-button.tsx";
import { Branch } from "../runtime/task-tree.tsx";

const SHOWN = 100;

export function Sessions() {
  const report = usePoll(tasks);
  const backends = tasksOfKind(report?.tasks ?? [], ({ kind }) => kind === "mcp backend");
  const sessions = backends.flatMap(({ name, children }) =>
    (children ?? []).filter(({ kind }) => kind === "mcp session").map((task) => ({ backend: name, task })),
  );
  return (
    <Panel
      title="Sessions"
      end={<span class="muted">{sessions.length} open</span>}
      flush
      below={
        backends.some(({ children }) => (children ?? []).length > 0) ? (
          <div class="inset">
            <Fold title="Processes and connections">{() => <Branch list={backends} />}</Fold>
          </div>
        ) : null
      }
    >
      {sessions.length === 0 ? (
        <p class="empty">
          No open sessions. A session appears here when a client connects. Each session starts its own process for stdio
          servers.
        </p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">session</th>
              <th scope="col">protocol</th>
              <th scope="col">servers</th>
              <th scope="col">user</th>
              <th scope="col">backend</th>
              <th scope="col">open for</th>
              {!mayOperate.value ? null : <th scope="col">action</th>}
            </tr>
          </thead>
          <tbody>
            {sessions.slice(0, SHOWN).map(({ backend, task }) => (
              <Row key={`${backend} ${task.name}`} backend={backend} task={task} />
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Row({ backend, task }: { backend: string; task: Task }) {
  const end = async (): Promise<void> => {
    await postJson("debug/mcp/sessions", { end: task.name });
    await tasks.refresh();
  };
  return (
    <tr>
      <td class="mono">{visible(task.name)}</td>
      <td class="mono">{visible(textOf(task.detail?.protocolVersion) || "–")}</td>
      <td class="mono">{serversText(task)}</td>
      <td class="mono">{visible(textOf(task.detail?.owner) || "–")}</td>
      <td class="mono muted">{visible(backend)}</td>
      <td>{ageText(task.ageMs)}</td>
      {!mayOperate.value ? null : (
        <td>
          <SureButton label="End" onSure={end} />
        </td>
      )}
    </tr>
  );
}

function serversText({ detail }: Task): string {
  const names = listOf(detail?.targets).map(({ target }) => textOf(target));
  return visible(names.length > 4 ? `${names.slice(0, 4).join(", ")} and ${names.length - 4} more` : names.join(", "));
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
