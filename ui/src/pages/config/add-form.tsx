/**
 * Provides dialogs that add a route, backend, policy, MCP server, or model. The gateway inserts the lines into the text
 * of the configuration file, and the editor shows the diff. Nothing is written until the user saves.
 */
import { useState } from "preact/hooks";
import { about, isReadOnly } from "../../data/about.ts";
import { postJson } from "../../data/api.ts";
import { type ConfigFile, configText } from "../../data/config-text.ts";
import { type Dump, dump } from "../../data/dump.ts";
import { usePoll } from "../../data/poll.ts";
import { navigate, pageHref } from "../../frame/router.ts";
import { Dialog } from "../../parts/dialog.tsx";
import { fileName, visible } from "../../parts/format.ts";
import { draftOf, offerDraft } from "./drafts.ts";
import { FORMS, type FormContext, type FormField, type FormKind, type FormOption, type Values } from "./forms.ts";
import { docOf, type JsonSchema } from "./schema-doc.ts";
import { useSchema } from "./use-schema.ts";

export function AddButton({ kind }: { kind: FormKind }) {
  const [isOpen, setIsOpen] = useState(false);
  if (isReadOnly.value) return null;
  return (
    <>
      <button type="button" class="button" onClick={() => setIsOpen(true)}>
        {FORMS[kind].title}
      </button>
      {isOpen ? <AddDialog kind={kind} target="" onClose={() => setIsOpen(false)} /> : null}
    </>
  );
}

export function AddDialog(props: { readonly kind: FormKind; readonly target: string; onClose(): void }) {
  const { kind, onClose } = props;
  const form = FORMS[kind];
  const files = usePoll(configText)?.files ?? [];
  const loaded = usePoll(dump);
  const context = contextOf(files, loaded, useSchema());
  const [typed, setTyped] = useState<Values>(props.target === "" ? {} : { target: props.target });
  const [chosenFile, setChosenFile] = useState("");
  const [problem, setProblem] = useState<string | undefined>(undefined);
  // The fields can depend on a menu, whose first option is selected until the user changes it.
  const fields = form.fields(withDefaults(form.fields(typed, context), typed), context);
  const values = withDefaults(fields, typed);
  const isComplete = fields.every(({ name, isOptional }) => isOptional === true || (values[name] ?? "") !== "");
  const home = files.find(({ places }) => places[values.target ?? ""] !== undefined);
  const file = home ?? files.find((one) => one.file === chosenFile) ?? files[0];
  const review = async (): Promise<void> => {
    if (!file) return;
    const draft = draftOf(file.file);
    if (draft !== undefined && draft.base !== file.base) {
      setProblem("There are unsaved edits of an older version of the file on Config. Save or discard them first.");
      return;
    }
    try {
      const { text, line } = await postJson<{ text: string; line: number }>("add", {
        file: file.file,
        ...(draft === undefined ? {} : { text: draft.text }),
        entry: { kind, ...(form.entry ? form.entry(values) : values) },
      });
      offerDraft(file.file, { base: file.base, text });
      onClose();
      navigate(pageHref("config", { file: file.file, line: String(line) }));
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <Dialog title={form.title} onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void review();
        }}
      >
        <p class="muted">{form.doc}</p>
        {fields.map((field) => (
          <Field
            key={field.name}
            field={field}
            value={values[field.name] ?? ""}
            onChange={(value) => setTyped({ ...typed, [field.name]: value })}
          />
        ))}
        {home === undefined && files.length > 1 ? (
          <Field
            field={{
              name: "file",
              label: "File",
              options: files.map((one) => ({ value: one.file, title: fileName(one.file) })),
            }}
            value={file?.file ?? ""}
            onChange={setChosenFile}
          />
        ) : null}
        {problem === undefined ? null : <p class="note bad">{visible(problem)}</p>}
        <p class="muted small">
          {about.value.value?.mayEdit
            ? "Nothing is written until you save the change on the next page."
            : "Saving is off (config.allowConfigEdit). The next page shows the text to copy."}
        </p>
        <div class="row end">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button primary" disabled={!isComplete || !file}>
            Review change
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Field(props: { readonly field: FormField; readonly value: string; onChange(value: string): void }) {
  const { label, placeholder, options, isOptional } = props.field;
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is one of the two below
    <label class="field">
      <span>
        {label}
        {isOptional ? " (optional)" : ""}
      </span>
      {options ? (
        <select class="input" value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
          {options.map(({ value, title }) => (
            <option key={value} value={value}>
              {visible(title)}
            </option>
          ))}
        </select>
      ) : (
        <input
          class="input mono"
          value={props.value}
          placeholder={placeholder}
          spellcheck={false}
          onInput={(event) => props.onChange(event.currentTarget.value)}
        />
      )}
    </label>
  );
}

/** Selects the first option of menus, and omits empty fields and fields that are not shown. */
function withDefaults(fields: readonly FormField[], typed: Values): Values {
  return Object.fromEntries(
    fields.flatMap(({ name, options }) => {
      const value = (typed[name] ?? "").trim();
      if (options && !options.some((one) => one.value === value)) return [[name, options[0]?.value ?? ""]];
      return value === "" ? [] : [[name, typed[name] ?? ""]];
    }),
  );
}

/** Offers only names that are in the files, because the form adds lines below them. */
function contextOf(
  files: readonly ConfigFile[],
  loaded: Dump | undefined,
  schema: JsonSchema | undefined,
): FormContext {
  const places = Object.assign({}, ...files.map((file) => file.places)) as ConfigFile["places"];
  const options = (kind: "route" | "listener", names: readonly string[]): FormOption[] =>
    names
      .filter((name) => places[`${kind} ${name}`] !== undefined)
      .map((name) => ({ value: `${kind} ${name}`, title: `${kind} ${name}` }));
  // A section such as `llm` is a route and a listener at the same line.
  const isSection = (name: string): boolean => places[`route ${name}`]?.line === places[`listener ${name}`]?.line;
  const routes = loaded?.routes.map(({ name }) => name) ?? [];
  const listeners = (loaded?.listeners.map(({ name }) => name) ?? []).filter((name) => !isSection(name));
  const providers = schema ? (docOf(schema, ["llm", "models", "*", "provider"])?.values ?? []) : [];
  return {
    routes: options(
      "route",
      routes.filter((name) => !isSection(name)),
    ),
    owners: [...options("route", routes), ...options("listener", listeners)],
    listeners,
    // `openai` is another spelling of `openAI`.
    providers: [...providers.filter((name) => name !== "openai"), "openAICompatible"],
  };
}
