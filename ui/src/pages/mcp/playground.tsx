/**
 * The connected client: tools, prompts and resources to choose from, a form for the chosen one, and what came of it.
 */
import { useState } from "preact/hooks";
import { param, setParams } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Tabs } from "../../parts/tabs.tsx";
import { type Callable, CallPanel } from "./call-panel.tsx";
import type { Connection } from "./session.ts";

type Open = Extract<Connection, { state: "open" }>;
type Kind = "tools" | "prompts" | "resources";

export function Playground({ open }: { open: Open }) {
  const [search, setSearch] = useState("");
  const kind = (param("kind") === "" ? "tools" : param("kind")) as Kind;
  const all = callablesOf(open, kind);
  const shown = all.filter(({ name, doc }) => `${name} ${doc}`.toLowerCase().includes(search.toLowerCase()));
  const chosen = all.find(({ name }) => name === param("tool")) ?? all[0];
  const { info } = open;
  return (
    <div class="split side">
      <Panel
        title={visible(info.serverInfo?.title ?? info.serverInfo?.name ?? "server")}
        end={
          <span class="muted small">
            {visible(info.serverInfo?.version ?? "")} · {visible(info.protocolVersion)}
          </span>
        }
        flush
      >
        <Tabs<Kind>
          label="Capabilities"
          tabs={[
            { name: "tools", title: `Tools ${open.tools.length}` },
            { name: "prompts", title: `Prompts ${open.prompts.length}` },
            { name: "resources", title: `Resources ${open.resources.length}` },
          ]}
          selected={kind}
          onSelect={(next) => setParams({ kind: next, tool: "" }, { replace: true })}
        />
        {all.length > 8 ? (
          <input
            class="input find"
            aria-label="Search"
            placeholder="Search"
            value={search}
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        ) : null}
        <ul class="pick">
          {shown.map(({ name, doc }) => (
            <li key={name}>
              <button
                type="button"
                aria-current={name === chosen?.name ? "true" : undefined}
                onClick={() => setParams({ tool: name, kind }, { replace: true })}
              >
                <span class="two-lines">
                  <span class="mono ellipsis">{visible(name)}</span>
                  <span class="muted small ellipsis">{visible(doc)}</span>
                </span>
              </button>
            </li>
          ))}
          {shown.length === 0 ? <li class="empty">None.</li> : null}
        </ul>
      </Panel>
      {chosen ? <CallPanel key={`${kind} ${chosen.name}`} callable={chosen} client={open.client} /> : null}
    </div>
  );
}

function callablesOf(open: Open, kind: Kind): Callable[] {
  if (kind === "tools")
    return open.tools.map(({ name, title, description, inputSchema }) => ({
      name,
      doc: description ?? title ?? "",
      schema: inputSchema ?? {},
      method: "tools/call",
      params: (args) => ({ name, arguments: args }),
      verb: "Call",
    }));
  if (kind === "prompts")
    return open.prompts.map((prompt) => ({
      name: prompt.name,
      doc: prompt.description ?? "",
      schema: {
        properties: Object.fromEntries(
          (prompt.arguments ?? []).map(({ name, description }) => [
            name,
            { type: "string", ...(description === undefined ? {} : { description }) },
          ]),
        ),
        required: (prompt.arguments ?? []).filter(({ required }) => required).map(({ name }) => name),
      },
      method: "prompts/get",
      params: (args) => ({ name: prompt.name, arguments: args }),
      verb: "Get",
    }));
  return open.resources.map(({ uri, uriTemplate, name, description }) => ({
    name: uri ?? uriTemplate ?? name,
    doc: description ?? name,
    schema:
      uri === undefined ? { properties: { uri: { type: "string", default: uriTemplate } }, required: ["uri"] } : {},
    method: "resources/read",
    params: (args) => ({ uri: uri ?? String(args.uri ?? "") }),
    verb: "Read",
  }));
}
