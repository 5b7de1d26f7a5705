/**
 * Implements the LLM page: a chat through the gateway, the models and providers, and their usage.
 */
import { llmProviderOf } from "../../../../src/cli/views/llm-providers.ts";
import { isReadOnly } from "../../data/about.ts";
import { type DumpBackend, dump, listOf, textOf } from "../../data/dump.ts";
import { endpointsOf } from "../../data/endpoints.ts";
import { usePoll } from "../../data/poll.ts";
import { visible } from "../../parts/format.ts";
import { Empty, PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { AddButton } from "../config/add-form.tsx";
import { LlmPlayground, modelNames } from "./playground.tsx";
import { UsagePanel } from "./usage.tsx";

export function Llm() {
  const loaded = usePoll(dump);
  if (!loaded) return <Skeleton lines={6} />;
  const backends = loaded.backends.filter(({ type }) => type === "ai");
  const endpoints = endpointsOf(loaded, "ai");
  if (backends.length === 0)
    return (
      <>
        <PageHead title="LLM" doc="Models, chat, and usage." />
        <Empty title="No models" yaml={EXAMPLE}>
          <p>
            Configured models appear here. Use one provider, several providers with failover, or a list of models. The
            demo needs no key:
          </p>
        </Empty>
        <div class="row">
          <AddButton kind="model" />
        </div>
      </>
    );
  return (
    <>
      <PageHead title="LLM" doc="Models, chat, and usage." />
      <div class="split chat-and-usage">
        {isReadOnly.value || endpoints.length === 0 ? null : (
          <LlmPlayground endpoints={endpoints} backends={backends} />
        )}
        <div class="stack">
          <UsagePanel />
          <Providers backends={backends} />
        </div>
      </div>
    </>
  );
}

function Providers({ backends }: { backends: readonly DumpBackend[] }) {
  const listed = new Set(backends.flatMap(({ targets }) => listOf(targets).map(({ name }) => textOf(name))));
  const others = modelNames(backends).filter((name) => !listed.has(name));
  return (
    <Panel title="Models and providers" end={<AddButton kind="model" />} flush>
      <table>
        <thead>
          <tr>
            <th scope="col">Provider</th>
            <th scope="col">Address</th>
            <th scope="col">State</th>
          </tr>
        </thead>
        <tbody>
          {backends.flatMap((backend) =>
            listOf(backend.targets).map((target) => (
              <tr key={`${backend.name} ${textOf(target.name)}`}>
                <td class="mono">{visible(textOf(target.name ?? target.provider))}</td>
                <td class="mono wrap">{visible(textOf(target.target))}</td>
                <td>
                  <ProviderStatus target={target} />
                </td>
              </tr>
            )),
          )}
        </tbody>
      </table>
      {others.length === 0 ? null : (
        <p class="models">
          {others.map((name) => (
            <span class="chip mono" key={name}>
              {visible(name)}
            </span>
          ))}
        </p>
      )}
    </Panel>
  );
}

const EXAMPLE = `llm:
  port: 4000
  models:
    - name: demo
      provider: { demo: {} }`;

function ProviderStatus({ target }: { target: Record<string, unknown> }) {
  const { state, text } = llmProviderOf(target);
  return <Status level={state === "ok" ? "ok" : "bad"}>{text}</Status>;
}
