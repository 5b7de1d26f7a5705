/**
 * Implements the playground of a connected client: a list of tools, prompts, and resources, and a form to call the
 * selected one.
 */
import { useState } from "preact/hooks";
import { dump, listOf, textOf } from "../../data/dump.ts";
import { param, setParams } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { type PickEntry, PickList } from "../../parts/pick-list.tsx";
import { Tabs } from "../../parts/tabs.tsx";
import { keepCall, type PastCall } from "./call-history.ts";
import { CallHistory } from "./call-history-panel.tsx";
import { type Callable, CallPanel } from "./call-panel.tsx";
import type { Connection } from "./session.ts";

type Open = Extract<Connection, { state: "open" }>;
type Kind = "tools" | "prompts" | "resources";

export function Playground({ open }: { open: Open }) {
  const kind = (param("kind") === "" ? "tools" : param("kind")) as Kind;
  const all = callablesOf(open, kind);
  const search = param("find").toLowerCase();
  const shown = all.filter(({ name, doc }) => `${name} ${doc}`.toLowerCase().includes(search));
  const chosen = all.find(({ name }) => name === param("tool")) ?? all[0];
  const { info } = open;
  const [opened, setOpened] = useState<PastCall | undefined>(undefined);
  const past = opened?.name === chosen?.name && opened?.method === chosen?.method ? opened : undefined;
  return (
    <div class="split side playground">
      <Panel
        isTall
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
            data-search
            aria-label="Search"
            placeholder={`Search ${all.length} ${kind}`}
            value={param("find")}
            onInput={(event) => setParams({ find: event.currentTarget.value }, { replace: true })}
          />
        ) : null}
        <PickList rowHeight={44} empty="None." entries={entriesOf(shown, serversOf(open), chosen?.name, kind)} />
      </Panel>
      <div class="calls">
        {chosen ? (
          <CallPanel
            key={`${kind} ${chosen.name} ${past?.id ?? ""}`}
            callable={chosen}
            client={open.client}
            past={past}
            onEnd={(args, run) =>
              keepCall({
                at: Math.round(performance.timeOrigin + run.startedMs),
                endpoint: open.endpoint.id,
                method: chosen.method,
                name: chosen.name,
                args,
                run,
              })
            }
          />
        ) : null}
        <CallHistory
          endpoint={open.endpoint.id}
          selected={past?.id}
          onOpen={(call) => {
            setOpened(call);
            setParams({ kind: kindOf(call.method), tool: call.name }, { replace: true });
          }}
        />
      </div>
    </div>
  );
}

function kindOf(method: string): Kind {
  if (method === "prompts/get") return "prompts";
  return method === "resources/read" ? "resources" : "tools";
}

/** Longer names come first, so that tool `c` of server `a_b` is not shown as a tool of server `a`. */
function serversOf({ endpoint }: Open): string[] {
  const backends = dump.value.value?.backends ?? [];
  return backends
    .filter(({ name }) => endpoint.backends.includes(name))
    .flatMap(({ targets }) => listOf(targets).map(({ name }) => textOf(name)))
    .sort((a, b) => b.length - a.length);
}

/** Adds a heading per server if there are several. Tool names stay as clients see them. */
function entriesOf(
  shown: readonly Callable[],
  servers: readonly string[],
  chosen: string | undefined,
  kind: Kind,
): PickEntry[] {
  const entry = ({ name, doc }: Callable): PickEntry => ({
    key: name,
    isChosen: name === chosen,
    onPick: () => setParams({ tool: name, kind }, { replace: true }),
    content: (
      <span class="two-lines">
        <span class="mono ellipsis" title={visible(name)}>
          {visible(name)}
        </span>
        <span class="muted small ellipsis">{visible(doc)}</span>
      </span>
    ),
  });
  if (servers.length < 2) return shown.map(entry);
  const groups = new Map<string, Callable[]>();
  for (const one of shown) {
    const server = servers.find((name) => one.name.startsWith(`${name}_`)) ?? "";
    const known = groups.get(server);
    if (known) known.push(one);
    else groups.set(server, [one]);
  }
  if (groups.size < 2 && groups.has("")) return shown.map(entry);
  return [...groups].flatMap(([server, list]) => [
    {
      key: `\n${server}`,
      content: (
        <>
          <strong class="mono ellipsis">{server === "" ? "other" : visible(server)}</strong>
          <span class="hint">{list.length}</span>
        </>
      ),
    },
    ...list.map(entry),
  ]);
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
