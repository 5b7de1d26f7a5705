/**
 * Implements the MCP page: the servers of the gateway, and a client to try their tools.
 */

import { ageText } from "../../../../src/base/format.ts";
import { stateText } from "../../../../src/cli/views/mcp-servers.ts";
import { isReadOnly, mayOperate } from "../../data/about.ts";
import { type DumpBackend, dump, listOf, targetText, textOf } from "../../data/dump.ts";
import { type Endpoint, endpointsOf } from "../../data/endpoints.ts";
import { serverState } from "../../data/mcp-targets.ts";
import { usePoll } from "../../data/poll.ts";
import { param, setParams } from "../../frame/router.ts";
import { CredentialMenu } from "../../parts/credential-menu.tsx";
import { visible } from "../../parts/format.ts";
import { Empty, PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { AddButton } from "../config/add-form.tsx";
import { Connections } from "./connections.tsx";
import { LoginPanel } from "./login-panel.tsx";
import { Playground } from "./playground.tsx";
import { connect, connection, disconnect } from "./session.ts";
import { Sessions } from "./sessions.tsx";
import { ToolCalls } from "./tool-calls.tsx";
import { ToolLocks } from "./tool-lock.tsx";

export function Mcp() {
  const loaded = usePoll(dump);
  if (!loaded) return <Skeleton lines={6} />;
  const endpoints = endpointsOf(loaded, "mcp");
  const backends = loaded.backends.filter(({ type }) => type === "mcp");
  if (backends.length === 0)
    return (
      <>
        <PageHead title="MCP" doc="MCP servers, sessions, and a client to call tools." />
        <Empty title="No MCP servers" yaml={EXAMPLE}>
          <p>
            Configured servers appear here. With this configuration, MCP clients connect to http://localhost:3000/mcp:
          </p>
        </Empty>
        <div class="row">
          <AddButton kind="server" />
        </div>
      </>
    );
  const current = connection.value;
  const chosen =
    endpoints.find(({ id }) => id === param("at")) ??
    (current.state === "none" ? undefined : current.endpoint) ??
    endpoints[0];
  return (
    <>
      <PageHead title="MCP" doc="MCP servers, sessions, and a client to call tools.">
        {isReadOnly.value || !chosen ? null : <Connecting endpoints={endpoints} chosen={chosen} />}
      </PageHead>
      {current.state === "failed" ? <LoginPanel endpoint={current.endpoint} problem={current.problem} /> : null}
      {current.state === "connecting" ? (
        <Panel title="Connecting">
          <Skeleton lines={2} />
        </Panel>
      ) : null}
      {current.state === "open" ? <Playground open={current} /> : null}
      <Targets backends={backends} />
      <ToolCalls />
      <ToolLocks backends={backends} />
      <Sessions />
      {mayOperate.value ? <Connections /> : null}
    </>
  );
}

function Connecting({ endpoints, chosen }: { endpoints: readonly Endpoint[]; chosen: Endpoint }) {
  const isOpen = connection.value.state === "open";
  return (
    <>
      <CredentialMenu />
      <select
        class="input"
        aria-label="Endpoint"
        value={chosen.id}
        onChange={(event) => setParams({ at: event.currentTarget.value, tool: "" })}
      >
        {endpoints.map(({ id, port, path, route }) => (
          <option key={id} value={id}>
            {visible(`:${port}${path} (${route})`)}
          </option>
        ))}
      </select>
      {isOpen ? (
        <button type="button" class="button" onClick={disconnect}>
          Disconnect
        </button>
      ) : (
        <button
          type="button"
          class="button primary"
          disabled={connection.value.state === "connecting"}
          onClick={() => connect(chosen)}
        >
          Connect
        </button>
      )}
    </>
  );
}

function Targets({ backends }: { backends: readonly DumpBackend[] }) {
  const rows = backends.flatMap((backend) => listOf(backend.targets).map((target) => ({ backend, target })));
  return (
    <Panel title="Servers" end={<AddButton kind="server" />} flush>
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">State</th>
            <th scope="col">Command or URL</th>
            <th scope="col">Backend</th>
            <th scope="col">Last error</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ backend, target }) => (
            <TargetRow key={`${backend.name} ${textOf(target.name)}`} backend={backend.name} target={target} />
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function TargetRow({ backend, target }: { backend: string; target: Record<string, unknown> }) {
  const name = textOf(target.name);
  const server = serverState(backend, name);
  const { sessions, lastError, agoMs, stderr } = server;
  const isFailing = server.state === "failing";
  const isOver = !isFailing && lastError !== undefined;
  return (
    <tr>
      <td class="mono">{visible(name)}</td>
      <td>
        <Status level={isFailing ? (sessions > 0 ? "warn" : "bad") : server.state === "up" ? "ok" : "idle"}>
          {stateText(server)}
        </Status>
      </td>
      <td class="mono wrap">{visible(targetText(target))}</td>
      <td class="mono muted">{visible(backend)}</td>
      <td class="wrap">
        <span class={isOver ? "muted" : ""}>
          {isOver && agoMs !== undefined ? `${ageText(agoMs)} ago: ` : ""}
          {visible(lastError ?? "")}
        </span>
        {stderr.length === 0 ? null : (
          <details>
            <summary>stderr</summary>
            <pre class="code">{stderr.map(visible).join("\n")}</pre>
          </details>
        )}
      </td>
    </tr>
  );
}

const EXAMPLE = `mcp:
  port: 3000
  targets:
    - name: everything
      stdio:
        cmd: npx
        args: ["-y", "@modelcontextprotocol/server-everything"]`;
