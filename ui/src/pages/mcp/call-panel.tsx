/**
 * Shows one MCP call: a form, progress and log messages, the result, and a link to the trace.
 */
import { useRef, useState } from "preact/hooks";
import { durationText } from "../../../../src/base/format.ts";
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { Tabs } from "../../parts/tabs.tsx";
import type { JsonSchema } from "../config/schema-doc.ts";
import { hasFailed, type PastCall, type Run } from "./call-history.ts";
import { ContentView } from "./content-view.tsx";
import { type McpClient, McpError, type Notification } from "./mcp-client.ts";
import { JsonField, SchemaForm } from "./schema-form.tsx";
import { question } from "./session.ts";

export interface Callable {
  readonly name: string;
  readonly doc: string;
  readonly schema: JsonSchema;
  readonly method: string;
  readonly verb: string;
  params(args: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>>;
}

export function CallPanel(props: {
  readonly callable: Callable;
  readonly client: McpClient;
  /** A call to show again. */
  readonly past: PastCall | undefined;
  onEnd(args: Readonly<Record<string, unknown>>, run: Run): void;
}) {
  const { callable, client } = props;
  const [view, setView] = useState<"form" | "json">("form");
  const [args, setArgs] = useState<Readonly<Record<string, unknown>>>(props.past?.args ?? {});
  const [run, setRun] = useState<Run | undefined>(props.past?.run);
  const stop = useRef<AbortController | undefined>(undefined);

  const start = async (): Promise<void> => {
    stop.current = new AbortController();
    const startedMs = performance.now();
    let current: Run = { state: "running", startedMs, notes: [] };
    const update = (next: Run): void => {
      current = next;
      setRun(next);
    };
    update(current);
    try {
      const params = { ...callable.params(args), _meta: { progressToken: `ui-${Math.round(startedMs)}` } };
      const { result, requestId } = await client.request(callable.method, params, {
        signal: stop.current.signal,
        onNotification: (note) => update(withNote(current, note)),
      });
      update({ ...current, state: "done", endedMs: performance.now(), result, requestId });
    } catch (error) {
      const requestId = error instanceof McpError ? error.requestId : undefined;
      const message = (error as Error).message;
      update({ ...current, state: "failed", endedMs: performance.now(), error: message, requestId });
    }
    props.onEnd(args, current);
  };
  return (
    <Panel title={<span class="mono">{visible(callable.name)}</span>} isTall>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        {callable.doc === "" ? null : <p class="wrap">{visible(callable.doc)}</p>}
        <Tabs<"form" | "json">
          label="Arguments"
          tabs={[
            { name: "form", title: "Form" },
            { name: "json", title: "JSON" },
          ]}
          selected={view}
          onSelect={setView}
        />
        {view === "form" ? (
          <SchemaForm schema={callable.schema} value={args} onChange={setArgs} />
        ) : (
          <JsonField
            value={args}
            placeholder="Arguments as JSON"
            rows={6}
            onChange={(next) => setArgs((next as Record<string, unknown> | undefined) ?? {})}
          />
        )}
        <div class="row">
          <button type="submit" class="button primary" disabled={run?.state === "running"}>
            {callable.verb}
          </button>
          {run?.state === "running" ? (
            <button type="button" class="button" onClick={() => stop.current?.abort()}>
              Cancel
            </button>
          ) : null}
        </div>
      </form>
      <div class="stack result">
        {question.value === undefined ? null : <ElicitationForm />}
        {run === undefined ? <p class="muted">The result appears here.</p> : <RunView run={run} />}
      </div>
    </Panel>
  );
}

function RunView({ run }: { run: Run }) {
  const words = {
    running: <Status level="busy">running</Status>,
    done: <Status level="ok">done</Status>,
    failed: <Status level="bad">failed</Status>,
  };
  return (
    <div class="stack" role="status">
      <div class="row">
        {run.state === "done" && hasFailed(run) ? (
          <Status level="bad">the tool reported an error</Status>
        ) : (
          words[run.state]
        )}
        {run.endedMs === undefined ? null : <span class="muted">{durationText(run.endedMs - run.startedMs)}</span>}
        {run.requestId === undefined ? null : <a href={pageHref("requests", { id: run.requestId })}>trace</a>}
      </div>
      {run.progress ? (
        <div class="row">
          <progress max={run.progress.total ?? 100} value={run.progress.done} aria-label="progress" />
          <span class="muted">
            {run.progress.done}
            {run.progress.total === undefined ? "" : ` of ${run.progress.total}`} {visible(run.progress.message)}
          </span>
        </div>
      ) : null}
      {run.notes.map((note, i) => (
        <div key={i} class="note small">
          <span class="mono">{visible(note.method)}</span> <Json value={note.params ?? {}} open={0} />
        </div>
      ))}
      {run.error === undefined ? null : <p class="note bad wrap">{visible(run.error)}</p>}
      {run.result === undefined ? null : <ContentView result={run.result} />}
    </div>
  );
}

/** A server can request input from the user during a call (elicitation). */
function ElicitationForm() {
  const [content, setContent] = useState<Readonly<Record<string, unknown>>>({});
  const asked = question.value;
  if (!asked) return null;
  return (
    <form
      class="note warn stack"
      onSubmit={(event) => {
        event.preventDefault();
        asked.answer("accept", content);
      }}
    >
      <strong>{visible(asked.message)}</strong>
      <SchemaForm schema={asked.schema} value={content} onChange={setContent} />
      <div class="row">
        <button type="submit" class="button primary">
          Answer
        </button>
        <button type="button" class="button" onClick={() => asked.answer("decline")}>
          Decline
        </button>
      </div>
    </form>
  );
}

function withNote(run: Run, note: Notification): Run {
  if (note.method !== "notifications/progress") return { ...run, notes: [...run.notes, note] };
  const { progress, total, message } = note.params ?? {};
  return {
    ...run,
    progress: {
      done: Number(progress ?? 0),
      total: typeof total === "number" ? total : undefined,
      message: String(message ?? ""),
    },
  };
}
