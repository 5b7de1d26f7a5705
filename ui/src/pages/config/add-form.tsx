/**
 * Provides forms that add an MCP server or a model. The gateway inserts the lines into the configuration file's text,
 * and the editor shows the diff. Nothing is written until the user saves.
 */
import { useState } from "preact/hooks";
import { about, isReadOnly } from "../../data/about.ts";
import { postJson } from "../../data/api.ts";
import { configText } from "../../data/config-text.ts";
import { usePoll } from "../../data/poll.ts";
import { navigate, pageHref } from "../../frame/router.ts";
import { fileName, visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { draftOf, keepDraft } from "./drafts.ts";

const PROVIDERS = ["openAI", "anthropic", "gemini", "demo"] as const;

export function AddServer() {
  const [name, setName] = useState("");
  const [way, setWay] = useState<"url" | "cmd">("cmd");
  const [place, setPlace] = useState("");
  const entry =
    way === "url"
      ? { kind: "server", name, url: place.trim() }
      : { kind: "server", name, cmd: words(place)[0] ?? "", args: words(place).slice(1) };
  return (
    <AddPanel title="Add a server" entry={entry} isComplete={name !== "" && place.trim() !== ""}>
      <Field label="Name" value={name} onChange={setName} placeholder="files" />
      <label class="field">
        <span>Kind</span>
        <select class="input" value={way} onChange={(event) => setWay(event.currentTarget.value as "url" | "cmd")}>
          <option value="cmd">a command on this machine (stdio)</option>
          <option value="url">a remote server (URL)</option>
        </select>
      </label>
      <Field
        label={way === "url" ? "URL" : "Command and arguments"}
        value={place}
        onChange={setPlace}
        placeholder={way === "url" ? "https://mcp.example.com/mcp" : "npx -y @modelcontextprotocol/server-filesystem ."}
      />
    </AddPanel>
  );
}

export function AddModel() {
  const [name, setName] = useState("");
  const [provider, setProvider] = useState<string>(PROVIDERS[0]);
  const [model, setModel] = useState("");
  const [keyVariable, setKeyVariable] = useState("");
  const entry = {
    kind: "model",
    name,
    provider,
    ...(model === "" ? {} : { model }),
    ...(keyVariable === "" ? {} : { keyVariable }),
  };
  return (
    <AddPanel title="Add a model" entry={entry} isComplete={name !== ""}>
      <Field label="Name, as clients say it" value={name} onChange={setName} placeholder="fast" />
      <label class="field">
        <span>Provider</span>
        <select class="input" value={provider} onChange={(event) => setProvider(event.currentTarget.value)}>
          {PROVIDERS.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </label>
      <Field label="Model of the provider (default: the name)" value={model} onChange={setModel} placeholder="" />
      <Field
        label="Environment variable with the key"
        value={keyVariable}
        onChange={setKeyVariable}
        placeholder="OPENAI_API_KEY"
      />
    </AddPanel>
  );
}

function AddPanel(props: {
  readonly title: string;
  readonly entry: object;
  readonly isComplete: boolean;
  readonly children: preact.ComponentChildren;
}) {
  const files = usePoll(configText)?.files ?? [];
  const [chosen, setChosen] = useState("");
  const [problem, setProblem] = useState<string | undefined>(undefined);
  if (isReadOnly.value) return null;
  const file = files.find((one) => one.file === chosen) ?? files[0];
  const show = async (): Promise<void> => {
    if (!file) return;
    if (draftOf(file.file) !== undefined) {
      setProblem("There are unsaved edits on Config. Save or reset them first.");
      return;
    }
    try {
      const { text, line } = await postJson<{ text: string; line: number }>("add", {
        file: file.file,
        entry: props.entry,
      });
      keepDraft(file.file, { base: file.base, text });
      navigate(pageHref("config", { file: file.file, line: String(line) }));
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <details class="add">
      <summary class="button">{props.title}</summary>
      <Panel title={props.title}>
        <form
          class="stack"
          onSubmit={(event) => {
            event.preventDefault();
            void show();
          }}
        >
          {props.children}
          {files.length > 1 ? (
            <label class="field">
              <span>File</span>
              <select class="input" value={file?.file ?? ""} onChange={(event) => setChosen(event.currentTarget.value)}>
                {files.map((one) => (
                  <option key={one.file} value={one.file}>
                    {fileName(one.file)}
                  </option>
                ))}
              </select>
            </label>
          ) : null}
          {problem === undefined ? null : <p class="note bad">{visible(problem)}</p>}
          <div class="row">
            <button type="submit" class="button primary" disabled={!props.isComplete || !file}>
              Show the change
            </button>
            <span class="muted small">
              {about.value.value?.mayEdit
                ? "Nothing is written before you save it on the next page."
                : "Saving is off (config.allowConfigEdit): the next page shows the text to copy."}
            </span>
          </div>
        </form>
      </Panel>
    </details>
  );
}

function Field(props: {
  readonly label: string;
  readonly value: string;
  readonly placeholder: string;
  onChange(value: string): void;
}) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <input
        class="input mono"
        value={props.value}
        placeholder={props.placeholder}
        onInput={(event) => props.onChange(event.currentTarget.value)}
      />
    </label>
  );
}

/** Splits a command line at spaces and removes quotes, without a shell. */
export function words(text: string): string[] {
  return [...text.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(
    ([, double, single, plain]) => double ?? single ?? plain ?? "",
  );
}
