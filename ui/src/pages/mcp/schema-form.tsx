/**
 * Builds a form from a JSON schema, with one control per property by its type and format, and JSON input for types
 * without a control. Empty properties are omitted from the value.
 */
import { useState } from "preact/hooks";
import { textOf } from "../../data/dump.ts";
import { Choice } from "../../parts/choice.tsx";
import { visible } from "../../parts/format.ts";
import { branches, type JsonSchema } from "../config/schema-doc.ts";

type Fields = Readonly<Record<string, unknown>>;

export function SchemaForm({
  schema,
  value,
  onChange,
  root = schema,
  parents = [],
}: {
  schema: JsonSchema;
  value: Fields;
  onChange(value: Fields): void;
  root?: JsonSchema;
  /** References that lead to this schema. A schema can contain itself. */
  parents?: readonly string[];
}) {
  const properties = Object.entries(
    Object.assign({}, ...branches(schema, root).map((one) => one.properties ?? {})) as Record<string, JsonSchema>,
  );
  const required = new Set(branches(schema, root).flatMap((one) => one.required ?? []));
  if (properties.length === 0) return <p class="muted">No arguments.</p>;
  return (
    <div class="stack">
      {properties.map(([name, property]) => (
        <Property
          key={name}
          name={name}
          schema={property}
          root={root}
          parents={parents}
          isRequired={required.has(name)}
          value={value[name]}
          onChange={(next) => onChange(next === undefined ? without(value, name) : { ...value, [name]: next })}
        />
      ))}
    </div>
  );
}

interface FieldProps {
  readonly schema: JsonSchema;
  readonly root: JsonSchema;
  readonly parents: readonly string[];
  readonly isRequired: boolean;
  readonly value: unknown;
  onChange(value: unknown): void;
}

function Property({ name, ...field }: FieldProps & { readonly name: string }) {
  const description = branches(field.schema, field.root).find((one) => one.description)?.description;
  const head = (
    <span>
      <span class="mono">{visible(name)}</span>
      {field.isRequired ? " · required" : ""}
      {description === undefined ? "" : ` · ${visible(description)}`}
    </span>
  );
  const kind = kindOf(field.schema, field.root, field.parents);
  if (kind.is === "object")
    return (
      <fieldset class="stack">
        <legend class="mono">{visible(name)}</legend>
        {description === undefined ? null : <p class="muted small">{visible(description)}</p>}
        <Value {...field} kind={kind} label={name} />
      </fieldset>
    );
  // A label names one control. A group names its controls itself.
  if (kind.is === "choice" || kind.is === "set" || kind.is === "list")
    return (
      <div class="field">
        {head}
        <Value {...field} kind={kind} label={name} />
      </div>
    );
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is in `Value`
    <label class="field">
      {head}
      <Value {...field} kind={kind} />
    </label>
  );
}

type InputType = "date" | "datetime-local" | "time" | "email" | "url" | "password";

type Kind =
  | { readonly is: "choice" | "select" | "set"; readonly values: readonly unknown[] }
  | { readonly is: "list"; readonly items: JsonSchema }
  | { readonly is: "input"; readonly type: InputType }
  | { readonly is: "number" | "integer" | "text" | "object" | "json" };

/** More or longer values are shown as a menu. */
const CHOICE_VALUES = 4;
const CHOICE_LETTERS = 32;
const INPUT_TYPES: Readonly<Record<string, InputType>> = {
  date: "date",
  "date-time": "datetime-local",
  time: "time",
  email: "email",
  uri: "url",
  password: "password",
};

function kindOf(schema: JsonSchema, root: JsonSchema, parents: readonly string[]): Kind {
  const all = branches(schema, root);
  const type = typeOf(all);
  const values = valuesOf(all);
  if (values.length > 0) {
    const isShort = values.length <= CHOICE_VALUES && values.map(String).join("").length <= CHOICE_LETTERS;
    return { is: isShort ? "choice" : "select", values };
  }
  if (type === "boolean") return { is: "choice", values: [true, false] };
  if (type === "number" || type === "integer") return { is: type };
  if (type === "string") {
    const input = INPUT_TYPES[all.find((one) => one.format)?.format ?? ""];
    return input === undefined ? { is: "text" } : { is: "input", type: input };
  }
  const containsItself = refsOf(all).some((ref) => parents.includes(ref));
  if (type === "object" && !containsItself && all.some((one) => one.properties)) return { is: "object" };
  const items = type === "array" ? all.find((one) => one.items)?.items : undefined;
  if (items === undefined || typeof items !== "object") return { is: "json" };
  const allItems = branches(items, root);
  const itemValues = valuesOf(allItems);
  if (itemValues.length > 0) return { is: "set", values: itemValues };
  const isJson = typeOf(allItems) === "array" || kindOf(items, root, parents).is === "json";
  return isJson ? { is: "json" } : { is: "list", items };
}

function refsOf(all: readonly JsonSchema[]): string[] {
  return all.flatMap((one) => one.$ref ?? []);
}

function typeOf(all: readonly JsonSchema[]): string | undefined {
  return all.flatMap((one) => one.type ?? []).find((one) => one !== "null");
}

function valuesOf(all: readonly JsonSchema[]): unknown[] {
  return all.flatMap((one) => one.enum ?? (one.const === undefined ? [] : [one.const]));
}

function Value(props: FieldProps & { readonly kind: Kind; readonly label?: string }) {
  const { schema, root, parents, isRequired, value, onChange, kind, label } = props;
  const all = branches(schema, root);
  const named = label === undefined ? {} : { "aria-label": visible(label) };
  switch (kind.is) {
    case "choice":
      return (
        <Choice<string>
          label={visible(label ?? "")}
          values={[
            ...(isRequired ? [] : [{ value: "", title: "not set" }]),
            ...kind.values.map((one) => ({ value: JSON.stringify(one), title: visible(String(one)) })),
          ]}
          selected={value === undefined ? "" : JSON.stringify(value)}
          onSelect={(text) => onChange(parsed(text))}
        />
      );
    case "select":
      return (
        <select
          class="input"
          {...named}
          required={isRequired}
          value={value === undefined ? "" : JSON.stringify(value)}
          onChange={(event) => onChange(parsed(event.currentTarget.value))}
        >
          <option value="">{isRequired ? "choose one" : "not set"}</option>
          {kind.values.map((one) => (
            <option key={String(one)} value={JSON.stringify(one)}>
              {visible(String(one))}
            </option>
          ))}
        </select>
      );
    case "set":
      return <SetField label={label ?? ""} values={kind.values} value={value} onChange={onChange} />;
    case "list":
      return (
        <ListField
          label={label ?? ""}
          items={kind.items}
          root={root}
          parents={parents}
          value={value}
          onChange={onChange}
        />
      );
    case "number":
    case "integer":
      return (
        <input
          class="input"
          {...named}
          type="number"
          step={kind.is === "integer" ? 1 : "any"}
          min={all.find((one) => one.minimum !== undefined)?.minimum}
          max={all.find((one) => one.maximum !== undefined)?.maximum}
          required={isRequired}
          value={value === undefined ? "" : String(value)}
          placeholder={placeholderOf(all)}
          onInput={({ currentTarget: { valueAsNumber } }) =>
            onChange(Number.isNaN(valueAsNumber) ? undefined : valueAsNumber)
          }
        />
      );
    case "input":
      return (
        <input
          class="input"
          {...named}
          // The types of Preact know only single values.
          type={kind.type as "date"}
          {...(kind.type === "datetime-local" || kind.type === "time" ? { step: 1 } : {})}
          required={isRequired}
          value={kind.type === "datetime-local" ? localTime(value) : textOf(value)}
          placeholder={placeholderOf(all)}
          onInput={({ currentTarget: { value: text } }) =>
            onChange(text === "" ? undefined : kind.type === "datetime-local" ? new Date(text).toISOString() : text)
          }
        />
      );
    case "text":
      return (
        <textarea
          class="input growing"
          {...named}
          rows={1}
          required={isRequired}
          value={textOf(value)}
          placeholder={placeholderOf(all)}
          onInput={(event) => onChange(event.currentTarget.value === "" ? undefined : event.currentTarget.value)}
        />
      );
    case "object":
      return (
        <SchemaForm
          schema={schema}
          root={root}
          parents={[...parents, ...refsOf(all)]}
          value={(value as Fields | undefined) ?? {}}
          onChange={(next) => onChange(Object.keys(next).length === 0 ? undefined : next)}
        />
      );
    default:
      return <JsonField value={value} onChange={onChange} placeholder="JSON" />;
  }
}

/** Selects any of the values of an array. The array keeps the order of the schema. */
function SetField(props: {
  readonly label: string;
  readonly values: readonly unknown[];
  readonly value: unknown;
  onChange(value: unknown): void;
}) {
  const chosen = Array.isArray(props.value) ? props.value : [];
  return (
    <fieldset class="chips plain" aria-label={visible(props.label)}>
      {props.values.map((one) => (
        <button
          key={String(one)}
          type="button"
          class={chosen.includes(one) ? "chip on" : "chip"}
          aria-pressed={chosen.includes(one)}
          onClick={() => {
            const next = props.values.filter((other) => chosen.includes(other) !== (other === one));
            props.onChange(next.length === 0 ? undefined : next);
          }}
        >
          {visible(String(one))}
        </button>
      ))}
    </fieldset>
  );
}

/** Edits an array with one row per item. Empty rows are shown, but omitted from the value. */
function ListField(props: {
  readonly label: string;
  readonly items: JsonSchema;
  readonly root: JsonSchema;
  readonly parents: readonly string[];
  readonly value: unknown;
  onChange(value: unknown): void;
}) {
  const { label, items, root, parents } = props;
  const [rows, setRows] = useState<readonly unknown[]>(Array.isArray(props.value) ? props.value : []);
  const change = (next: readonly unknown[]): void => {
    setRows(next);
    const filled = next.filter((one) => one !== undefined);
    props.onChange(filled.length === 0 ? undefined : filled);
  };
  const kind = kindOf(items, root, parents);
  return (
    <fieldset class="stack plain" aria-label={visible(label)}>
      {rows.map((row, i) => (
        <div class="row item" key={i}>
          <div class="grow">
            <Value
              schema={items}
              root={root}
              parents={parents}
              isRequired={false}
              kind={kind}
              label={`${label} ${i + 1}`}
              value={row}
              onChange={(next) => change(rows.map((one, at) => (at === i ? next : one)))}
            />
          </div>
          <button
            type="button"
            class="button quiet"
            aria-label={`Remove ${visible(label)} ${i + 1}`}
            onClick={() => change(rows.filter((_row, at) => at !== i))}
          >
            ×
          </button>
        </div>
      ))}
      <div>
        <button type="button" class="button" onClick={() => change([...rows, undefined])}>
          Add {visible(label)}
        </button>
      </div>
    </fieldset>
  );
}

/** Keeps invalid JSON while the user types, but does not send it. */
export function JsonField({
  value,
  onChange,
  placeholder,
  rows = 2,
}: {
  value: unknown;
  onChange(value: unknown): void;
  placeholder: string;
  rows?: number;
}) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const isWrong = text.trim() !== "" && parsed(text) === undefined;
  return (
    <>
      <textarea
        class="input mono"
        rows={rows}
        aria-invalid={isWrong}
        aria-label={placeholder}
        placeholder={placeholder}
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          onChange(parsed(event.currentTarget.value));
        }}
      />
      {isWrong ? <span class="status bad">invalid JSON</span> : null}
    </>
  );
}

/** Converts a date and time to the local form of the browser's control. */
function localTime(value: unknown): string {
  const date = new Date(textOf(value));
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function placeholderOf(all: readonly JsonSchema[]): string {
  const fallback = all.find((one) => one.default !== undefined)?.default;
  return fallback === undefined ? "" : `default: ${String(fallback)}`;
}

function without(value: Fields, name: string): Fields {
  return Object.fromEntries(Object.entries(value).filter(([key]) => key !== name));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
