/**
 * Lists accounts that users connected at MCP servers with `oauth`, with buttons to test and revoke them.
 */
import { useState } from "preact/hooks";
import { getJson, postJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { SureButton } from "../../parts/sure-button.tsx";
import { Ago } from "../../parts/time.tsx";

interface Connection {
  readonly id: string;
  readonly backend: string;
  readonly target: string;
  readonly user: string;
  readonly scope?: string;
  readonly connectedAt?: string;
}

interface Outcome {
  readonly ok: boolean;
  readonly reason: string;
}

const INTERVAL_MS = 10_000;

const connections = createPoll(() => getJson<{ connections: Connection[] }>("debug/mcp/connections"), INTERVAL_MS);

export function Connections() {
  const loaded = usePoll(connections);
  if (loaded === undefined || loaded.connections.length === 0) return null;
  return (
    <Panel title="Connected accounts" flush>
      <table>
        <thead>
          <tr>
            <th scope="col">User</th>
            <th scope="col">Server</th>
            <th scope="col">Scope</th>
            <th scope="col">Connected</th>
            <th scope="col">Action</th>
          </tr>
        </thead>
        <tbody>
          {loaded.connections.map((connection) => (
            <Row key={connection.id} connection={connection} />
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function Row({ connection }: { connection: Connection }) {
  const [outcome, setOutcome] = useState<Outcome | undefined>(undefined);
  const ask = async (action: "test" | "revoke"): Promise<void> => {
    setOutcome(await postJson<Outcome>("debug/mcp/connections", { action, id: connection.id }));
    if (action === "revoke") await connections.refresh();
  };
  return (
    <tr>
      <td class="mono">{visible(connection.user)}</td>
      <td class="mono">{visible(connection.target)}</td>
      <td class="mono wrap">{visible(connection.scope ?? "–")}</td>
      <td>
        <Ago at={connection.connectedAt} />
      </td>
      <td>
        <button
          type="button"
          class="button"
          onClick={() => ask("test").catch((error: Error) => setOutcome({ ok: false, reason: error.message }))}
        >
          Test
        </button>{" "}
        <SureButton label="Revoke" onSure={() => ask("revoke")} />
        {outcome === undefined ? null : (
          <>
            {" "}
            <Status level={outcome.ok ? "ok" : "bad"}>{visible(outcome.reason)}</Status>
          </>
        )}
      </td>
    </tr>
  );
}
