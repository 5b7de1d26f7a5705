/**
 * Lists open MCP sessions, the most recently used first, with a button to end them.
 */

import { ageText, wholeText } from "../../../../src/base/format.ts";
import { mayOperate } from "../../data/about.ts";
import { postJson } from "../../data/api.ts";
import { listOf } from "../../data/dump.ts";
import { usePoll } from "../../data/poll.ts";
import { type Task, tasks, tasksOfKind } from "../../data/tasks.ts";
import { pageHref } from "../../frame/router.ts";
import { Fold } from "../../parts/fold.tsx";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { ScrollX } from "../../parts/scroll-x.tsx";
import { Status } from "../../parts/status.tsx";
import { SureButton } from "../../parts/sure-button.tsx";
import { TaskRows } from "../runtime/task-table.tsx";
import { PLAYGROUND_CLIENT } from "./mcp-client.ts";

const SHOWN = 100;

interface Session {
  readonly id: string;
  readonly backend: string;
  readonly client: string;
  readonly version: string;
  readonly user: string;
  readonly protocol: string;
  readonly servers: string;
  readonly calls: number;
  readonly errors: number;
  readonly pendingCalls: number;
  readonly idleMs: number;
  readonly ageMs: number;
}

export function Sessions() {
  const report = usePoll(tasks);
  const backends = tasksOfKind(report?.tasks ?? [], ({ kind }) => kind === "mcp backend");
  const sessions = backends
    .flatMap(({ name, children }) =>
      (children ?? []).filter(({ kind }) => kind === "mcp session").map((task) => sessionOf(name, task)),
    )
    .sort((a, b) => a.idleMs - b.idleMs);
  return (
    <Panel
      title="Sessions"
      end={<span class="muted">{sessions.length} open</span>}
      flush
      below={
        backends.some(({ children }) => (children ?? []).length > 0) ? (
          <div class="inset">
            <Fold title="Processes and connections">
              {() => (
                <ScrollX>
                  <TaskRows list={backends} />
                </ScrollX>
              )}
            </Fold>
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
        <table class="sessions">
          <thead>
            <tr>
              <th scope="col">Client</th>
              <th scope="col">User</th>
              <th scope="col">Last activity</th>
              <th scope="col" class="number">
                Calls
              </th>
              <th scope="col" class="number">
                Errors
              </th>
              <th scope="col">Servers</th>
              <th scope="col">Protocol</th>
              <th scope="col">Open for</th>
              <th scope="col">Requests</th>
              {!mayOperate.value ? null : (
                <th scope="col">
                  <span class="unseen">Action</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {sessions.slice(0, SHOWN).map((session) => (
              <Row key={`${session.backend} ${session.id}`} session={session} />
            ))}
          </tbody>
        </table>
      )}
      {sessions.length > SHOWN ? (
        <p class="inset muted">{wholeText(sessions.length - SHOWN)} more, which were idle longer.</p>
      ) : null}
    </Panel>
  );
}

function Row({ session }: { session: Session }) {
  const { id, client, version, user, idleMs, pendingCalls, calls, errors, servers, protocol, ageMs, backend } = session;
  const end = async (): Promise<void> => {
    await postJson("debug/mcp/sessions", { end: id });
    await tasks.refresh();
  };
  return (
    <tr>
      <td class="client">
        {client === "" ? <span class="muted">unknown</span> : visible(client)}{" "}
        <span class="muted">{visible(version)}</span>{" "}
        {client === PLAYGROUND_CLIENT ? <span class="chip">playground</span> : null}
      </td>
      <td class="mono">{user === "" ? <span class="muted">–</span> : visible(user)}</td>
      <td>{pendingCalls > 0 ? <Status level="busy">now</Status> : lastUsedText(idleMs)}</td>
      <td class="number">{wholeText(calls)}</td>
      <td class="number">{errors > 0 ? <Status level="bad">{wholeText(errors)}</Status> : "0"}</td>
      <td class="mono">{visible(servers)}</td>
      <td class="mono">{protocol === "" ? "–" : visible(protocol)}</td>
      <td>{ageText(ageMs)}</td>
      <td>
        <a
          class="mono"
          href={pageHref("requests", { session: id })}
          title={`Session ${visible(id)} of ${visible(backend)}`}
        >
          {visible(id)}
        </a>
      </td>
      {!mayOperate.value ? null : (
        <td>
          <SureButton label="End" onSure={end} />
        </td>
      )}
    </tr>
  );
}

function lastUsedText(idleMs: number): string {
  return idleMs < 1_500 ? "now" : `${ageText(idleMs)} ago`;
}

function sessionOf(backend: string, { name, ageMs, detail = {} }: Task): Session {
  const client = (detail.client ?? {}) as Readonly<Record<string, unknown>>;
  const servers = listOf(detail.targets).map(({ target }) => textOf(target));
  return {
    id: name,
    backend,
    client: textOf(client.name),
    version: textOf(client.version),
    user: textOf(detail.user) || textOf(detail.owner),
    protocol: textOf(detail.protocolVersion),
    servers:
      servers.length > 4 ? `${servers.slice(0, 4).join(", ")} and ${servers.length - 4} more` : servers.join(", "),
    calls: numberOf(detail.calls),
    errors: numberOf(detail.errors),
    pendingCalls: numberOf(detail.pendingCalls),
    idleMs: numberOf(detail.idleMs),
    ageMs,
  };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function numberOf(value: unknown): number {
  return typeof value === "number" ? value : 0;
}
