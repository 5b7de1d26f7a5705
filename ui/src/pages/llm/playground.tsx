/**
 * Implements the LLM playground: one endpoint and credential, used for a chat or to compare models.
 */
import { useEffect } from "preact/hooks";
import { type DumpBackend, listOf, textOf } from "../../data/dump.ts";
import type { Endpoint } from "../../data/endpoints.ts";
import { requestList } from "../../data/requests.ts";
import { param, setParams } from "../../frame/router.ts";
import { CredentialMenu } from "../../parts/credential-menu.tsx";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Tabs } from "../../parts/tabs.tsx";
import { Chat } from "./chat.tsx";
import { Compare } from "./compare.tsx";

export function LlmPlayground(props: {
  readonly endpoints: readonly Endpoint[];
  readonly backends: readonly DumpBackend[];
}) {
  const { endpoints, backends } = props;
  useEffect(() => void requestList.refresh(), []);
  const endpoint = endpoints.find(({ id }) => id === param("at")) ?? endpoints[0];
  if (!endpoint) return null;
  const models = suggestedModels(backends.filter(({ name }) => endpoint.backends.includes(name)));
  const mode = param("mode") === "compare" ? "compare" : "chat";
  return (
    <Panel
      title="Playground"
      isTall
      end={
        <>
          {endpoints.length > 1 ? (
            <select
              class="input"
              aria-label="Endpoint"
              value={endpoint.id}
              onChange={(event) => setParams({ at: event.currentTarget.value, model: "" })}
            >
              {endpoints.map(({ id, port, route }) => (
                <option key={id} value={id}>
                  {visible(`:${port} (${route})`)}
                </option>
              ))}
            </select>
          ) : null}
          <CredentialMenu />
        </>
      }
    >
      <Tabs<"chat" | "compare">
        label="Mode"
        tabs={[
          { name: "chat", title: "Chat" },
          { name: "compare", title: "Compare models" },
        ]}
        selected={mode}
        onSelect={(next) => setParams({ mode: next === "chat" ? "" : next }, { replace: true })}
      />
      {mode === "chat" ? (
        <Chat endpoint={endpoint} models={models} />
      ) : (
        <Compare key={endpoint.id} endpoint={endpoint} models={models} />
      )}
    </Panel>
  );
}

/** If the configuration lists no models, suggests models of recent requests and provider names. */
function suggestedModels(backends: readonly DumpBackend[]): string[] {
  const names = modelNames(backends);
  if (names.length > 0) return names;
  const seen = (requestList.value.value ?? []).flatMap(({ llm }) => llm?.model ?? []);
  const providers = backends.flatMap(({ targets }) => listOf(targets).map(({ provider }) => textOf(provider)));
  return [...new Set([...providers, ...seen])];
}

export function modelNames(backends: readonly DumpBackend[]): string[] {
  const names = backends.flatMap(({ models }) => (Array.isArray(models) ? models.map(textOf) : []));
  return [...new Set(names)].filter((name) => name !== "");
}
