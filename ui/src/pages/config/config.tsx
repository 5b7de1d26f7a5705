/**
 * Implements the configuration editor, with problems in the margin, the documentation of the current field, and a
 * preview of changes.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { about, isReadOnly } from "../../data/about.ts";
import { postJson } from "../../data/api.ts";
import { type ConfigFile, configText } from "../../data/config-text.ts";
import { dump } from "../../data/dump.ts";
import { usePoll } from "../../data/poll.ts";
import { param, setParams, withParams } from "../../frame/router.ts";
import { fileName, visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { Popover } from "../../parts/popover.tsx";
import { Status } from "../../parts/status.tsx";
import { Tabs } from "../../parts/tabs.tsx";
import { AddDialog } from "./add-form.tsx";
import { DiffView } from "./diff-view.tsx";
import { draftOf, dropDraft, keepDraft, offered } from "./drafts.ts";
import { FORMS, type FormKind } from "./forms.ts";
import { type Judgement, JudgementView, type Problem } from "./judgement.tsx";
import { docOf, type FieldDoc } from "./schema-doc.ts";
import { useSchema } from "./use-schema.ts";
import { type LineMark, YamlEditor } from "./yaml-editor.tsx";
import { pathAt } from "./yaml-path.ts";

const PAUSE_MS = 400;

export function Config() {
  if (isReadOnly.value) return <LoadedOnly />;
  return <Files />;
}

/** A gateway listener serves the loaded configuration, but not the files. */
function LoadedOnly() {
  const loaded = usePoll(dump);
  return (
    <>
      <PageHead title="Config" doc="The loaded configuration, with secrets redacted." />
      <Panel title="Loaded configuration">{loaded ? <Json value={loaded} open={2} /> : <Skeleton />}</Panel>
    </>
  );
}

function Files() {
  const loaded = usePoll(configText);
  const files = loaded?.files ?? [];
  const file = files.find((one) => one.file === param("file")) ?? files[0];
  return (
    <>
      <PageHead
        title="Config"
        doc={
          about.value.value?.mayEdit
            ? "The file as written, with secrets redacted. Edits are checked; Save writes them."
            : "The file as written, with secrets redacted. Edits are checked, not applied."
        }
      >
        <Popover label="Add" title="Add to the configuration">
          <ul class="menu">
            {Object.entries(FORMS).map(([kind, { title }]) => (
              <li key={kind}>
                <a href={withParams({ add: kind })}>{title}</a>
              </li>
            ))}
          </ul>
        </Popover>
      </PageHead>
      {Object.hasOwn(FORMS, param("add")) ? (
        <AddDialog
          key={param("add")}
          kind={param("add") as FormKind}
          target={param("target")}
          onClose={() => setParams({ add: "", target: "" }, { replace: true })}
        />
      ) : null}
      {files.length > 1 ? (
        <Tabs
          label="Files"
          tabs={files.map((one) => ({ name: one.file, title: fileName(one.file) }))}
          selected={file?.file ?? ""}
          onSelect={(name) => setParams({ file: name, line: "" })}
        />
      ) : null}
      {configText.error.value === undefined ? null : <p class="note bad">{visible(configText.error.value)}</p>}
      {file ? <Editing key={`${file.file} ${file.base} ${offered.value}`} file={file} /> : <Skeleton lines={8} />}
    </>
  );
}

function Editing({ file }: { file: ConfigFile }) {
  const draft = draftOf(file.file);
  // A draft of another version of the file is offered, but does not replace the newer text.
  const isOwnDraft = draft?.base === file.base;
  const [text, setShown] = useState(draft && isOwnDraft ? draft.text : file.text);
  const [olderDraft, setOlderDraft] = useState(isOwnDraft ? undefined : draft?.text);
  const setText = (next: string): void => {
    setShown(next);
    setOlderDraft(undefined);
    if (next === file.text) dropDraft(file.file);
    else keepDraft(file.file, { base: file.base, text: next });
  };
  const [judged, setJudged] = useState<Judgement | undefined>(undefined);
  const [field, setField] = useState<{ path: string[]; doc: FieldDoc | undefined } | undefined>(undefined);
  const [saving, setSaving] = useState<string | undefined>(undefined);
  const schema = useSchema();
  const isEdited = text !== file.text;
  const lines = useMemo(() => text.split("\n"), [text]);
  // Validation and diff run only after a pause in typing, so that key presses stay fast.
  const [paused, setPaused] = useState(file.text);

  useEffect(() => {
    if (text === file.text) {
      setJudged(undefined);
      setPaused(text);
      return undefined;
    }
    const timer = setTimeout(() => {
      setPaused(text);
      postJson<Judgement>("validate", { file: file.file, base: file.base, text }).then(setJudged, (error: Error) =>
        setJudged({ problems: [{ message: error.message }], warnings: [], changes: [] }),
      );
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text, file]);

  const running = dump.value.value?.reload;
  const marks = judged ? marksOf(judged, file.file) : rejectedMarks(running?.refused?.problems ?? [], file.file);
  const save = async (): Promise<void> => {
    setSaving("saving");
    try {
      await postJson("save", { file: file.file, base: file.base, text });
      setSaving(undefined);
      dropDraft(file.file);
      await configText.refresh();
      await dump.refresh();
    } catch (error) {
      setSaving((error as Error).message);
    }
  };
  return (
    <div class="split config">
      <Panel
        title={
          <span class="mono" title={visible(file.file)}>
            {fileName(file.file)}
          </span>
        }
        end={
          <>
            {isEdited ? (
              <Status level="warn">unsaved changes</Status>
            ) : (
              <Status level={running?.refused ? "warn" : "ok"}>{running?.refused ? "rejected" : "active"}</Status>
            )}
            <button type="button" class="button" disabled={!isEdited} onClick={() => setText(file.text)}>
              Reset
            </button>
            {about.value.value?.mayEdit ? (
              <button
                type="button"
                class="button primary"
                disabled={!isEdited || judged === undefined || judged.problems.length > 0 || saving === "saving"}
                onClick={save}
              >
                Save
              </button>
            ) : null}
          </>
        }
        flush
      >
        <YamlEditor
          text={text}
          lines={lines}
          marks={marks}
          line={param("line") === "" ? undefined : Number(param("line"))}
          isReadOnly={false}
          onChange={setText}
          onLine={(index) => {
            const path = pathAt(lines, index);
            if (path.length === 0 || path.join("\n") === field?.path.join("\n")) return;
            setField({ path, doc: schema ? docOf(schema, path) : undefined });
          }}
        />
      </Panel>
      <div class="stack">
        {olderDraft === undefined ? null : (
          <div class="note warn">
            <p>The file changed while you had unsaved edits. They are kept.</p>
            <div class="row">
              <button type="button" class="button" onClick={() => setText(olderDraft)}>
                Show my edits
              </button>
              <button type="button" class="button" onClick={() => setText(file.text)}>
                Discard my edits
              </button>
            </div>
          </div>
        )}
        {saving === undefined || saving === "saving" ? null : <p class="note bad wrap">{visible(saving)}</p>}
        {running?.refused && !isEdited ? (
          <JudgementView
            title="The last reload was rejected"
            judged={{ problems: running.refused.problems.map((message) => ({ message })), warnings: [], changes: [] }}
          />
        ) : null}
        {isEdited ? (
          judged === undefined ? (
            <Panel title="Checking">
              <Skeleton lines={2} />
            </Panel>
          ) : (
            <JudgementView title="Check" judged={judged} />
          )
        ) : null}
        <Field field={field} />
        {isEdited && paused !== file.text ? (
          <Panel title="Unsaved changes" flush>
            <DiffView before={file.text} after={paused} />
          </Panel>
        ) : null}
      </div>
    </div>
  );
}

function Field({ field }: { field: { path: string[]; doc: FieldDoc | undefined } | undefined }) {
  if (!field)
    return (
      <Panel title="Field">
        <p class="muted">Point at a line, or move the cursor to it, to read about its field.</p>
      </Panel>
    );
  const { path, doc } = field;
  return (
    <Panel
      title={<span class="mono wrap">{visible(path.join(".").replaceAll(".*", "[]"))}</span>}
      end={<span class="muted">{doc?.type}</span>}
    >
      <div class="stack">
        <p>{doc ? doc.description || "No description." : "Unknown field."}</p>
        {doc && doc.values.length > 0 ? (
          <p>
            One of <code>{doc.values.join(", ")}</code>
          </p>
        ) : null}
        {doc && doc.fields.length > 0 ? (
          <dl class="attributes">
            {doc.fields.map(({ name, description }) => [
              <dt key={`${name} name`} class="mono">
                {name}
              </dt>,
              <dd key={name} class="muted">
                {description}
              </dd>,
            ])}
          </dl>
        ) : null}
      </div>
    </Panel>
  );
}

function marksOf({ problems, warnings }: Judgement, file: string): LineMark[] {
  const mark =
    (level: "bad" | "warn") =>
    (problem: Problem): LineMark[] =>
      problem.line === undefined || problem.file !== file
        ? []
        : [{ line: problem.line, level, message: problem.message }];
  return [...problems.flatMap(mark("bad")), ...warnings.flatMap(mark("warn"))];
}

/** Parses problems of the form `file:line:column: …`. */
function rejectedMarks(problems: readonly string[], file: string): LineMark[] {
  return problems.flatMap((text) => {
    const place = text.startsWith(`${file}:`) ? /^(\d+):\d+: (.*)$/s.exec(text.slice(file.length + 1)) : null;
    return place ? [{ line: Number(place[1]), level: "bad" as const, message: place[2] ?? "" }] : [];
  });
}
