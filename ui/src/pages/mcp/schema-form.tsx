/**
 * Builds a form from a JSON schema, with one field per property and JSON input for complex types. Empty properties are
 * omitted from the value.
 */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { visible } from "../../parts/format.ts";
import { branches, type JsonSchema } from "../config/schema-doc.ts";

type Fields = Readonly<Record<string, unknown>>;

export function SchemaForm({
  schema,
  value,
  onChange,
  root = schema,
}: {
  schema: JsonSchema;
  value: Fields;
  onChange(value: Fields): void;
  root?: JsonSchema;
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
          isRequired={required.has(name)}
          value={value[name]}
          onChange={(next) => onChange(next === undefined ? without(value, name) : { ...value, [name]: next })}
        />
      ))}
    </div>
  );
}

interface PropertyProps {
  readonly name: string;
  readonly schema: JsonSchema;
  readonly root: JsonSchema;
  readonly isRequired: boolean;
  readonly value: unknown;
  onChange(value: unknown): void;
}

function Property({ name, schema, root, isRequired, value, onChange }: PropertyProps) {
  const all = branches(schema, root);
  const type = all.flatMap((one) => one.type ?? []).find((one) => one !== "null");
  const values = all.flatMap((one) => one.enum ?? (one.const === undefined ? [] : [one.const]));
  const description = all.find((one) => one.description)?.description;
  const label = (field: ComponentChildren) => (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is the child that is passed in
    <label class="field">
      <span>
        <span class="mono">{visible(name)}</span>
        {isRequired ? " · required" : ""}
        {description === undefined ? "" : ` · ${visible(description)}`}
      </span>
      {field}
    </label>
  );
  if (values.length > 0)
    return label(
      <select
        class="input"
        value={value === undefined ? "" : JSON.stringify(value)}
        onChange={(event) => onChange(parsed(event.currentTarget.value))}
      >
        <option value="">{isRequired ? "choose one" : "not set"}</option>
        {values.map((one) => (
          <option key={String(one)} value={JSON.stringify(one)}>
            {visible(String(one))}
          </option>
        ))}
      </select>,
    );
  if (type === "boolean")
    return label(
      <select
        class="input"
        value={value === undefined ? "" : String(value)}
        onChange={(event) => onChange(parsed(event.currentTarget.value))}
      >
        <option value="">not set</option>
        <option value="true">true</option>
        <option value="false">false</option>
      </select>,
    );
  if (type === "number" || type === "integer")
    return label(
      <input
        class="input"
        type="number"
        step={type === "integer" ? 1 : "any"}
        required={isRequired}
        value={value === undefined ? "" : String(value)}
        placeholder={placeholderOf(all)}
        onInput={(event) =>
          onChange(Number.isNaN(event.currentTarget.valueAsNumber) ? undefined : event.currentTarget.valueAsNumber)
        }
      />,
    );
  if (type === "string")
    return label(
      <textarea
        class="input"
        rows={1}
        required={isRequired}
        value={value === undefined ? "" : String(value)}
        placeholder={placeholderOf(all)}
        onInput={(event) => onChange(event.currentTarget.value === "" ? undefined : event.currentTarget.value)}
      />,
    );
  if (type === "object" && all.some((one) => one.properties))
    return (
      <fieldset class="stack">
        <legend class="mono">{visible(name)}</legend>
        <SchemaForm
          schema={schema}
          root={root}
          value={(value as Fields | undefined) ?? {}}
          onChange={(next) => onChange(Object.keys(next).length === 0 ? undefined : next)}
        />
      </fieldset>
    );
  return label(<JsonField value={value} onChange={onChange} placeholder={type === "array" ? "[ … ]" : "JSON"} />);
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
