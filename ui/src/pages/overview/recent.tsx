/**
 * Shows the last requests, or suggests how to send one.
 */
import { isReadOnly } from "../../data/about.ts";
import type { Dump } from "../../data/dump.ts";
import { type Endpoint, endpointsOf } from "../../data/endpoints.ts";
import { exampleCommand } from "../../data/example-command.ts";
import { requestList } from "../../data/requests.ts";
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { RequestTable } from "../requests/request-table.tsx";

const SHOWN = 8;

export function Recent({ dump }: { dump: Dump }) {
  const rows = requestList.value.value;
  if (rows === undefined) return null;
  if (rows.length === 0) return <TryIt dump={dump} />;
  return (
    <Panel title="Recent requests" end={<a href={pageHref("requests")}>View all</a>} flush>
      <RequestTable rows={rows.slice(0, SHOWN)} />
    </Panel>
  );
}

function TryIt({ dump }: { dump: Dump }) {
  const mcp = endpointsOf(dump, "mcp")[0];
  const llm = endpointsOf(dump, "ai")[0];
  const command = exampleCommand(dump);
  return (
    <Panel title="No requests yet">
      <ul class="stack">
        {mcp && !isReadOnly.value ? (
          <li>
            <a href={pageHref("mcp", { at: mcp.id })}>Call a tool</a> of the MCP servers at <code>{address(mcp)}</code>
          </li>
        ) : null}
        {llm && !isReadOnly.value ? (
          <li>
            <a href={pageHref("llm", { at: llm.id })}>Chat</a> with a model at <code>{address(llm)}</code>
          </li>
        ) : null}
        {command !== undefined ? (
          <li>
            Or in a terminal: <code>{command}</code>
          </li>
        ) : null}
      </ul>
    </Panel>
  );
}

function address({ port, path }: Endpoint): string {
  return visible(`http://127.0.0.1:${port}${path}`);
}
