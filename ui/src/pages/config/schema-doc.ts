/**
 * Reads the documentation of a field from the JSON schema of the configuration.
 */
export interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly title?: string;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly format?: string;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | JsonSchema;
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, JsonSchema>>;
  readonly minimum?: number;
  readonly maximum?: number;
}

export interface FieldDoc {
  readonly description: string;
  readonly type: string;
  readonly values: readonly string[];
  readonly fields: readonly { readonly name: string; readonly description: string }[];
}

export function docOf(root: JsonSchema, path: readonly string[]): FieldDoc | undefined {
  let current = branches(root, root);
  for (const step of path) {
    current = current.flatMap((schema) => {
      const next =
        step === "*"
          ? schema.items
          : (schema.properties?.[step] ??
            (typeof schema.additionalProperties === "object" ? schema.additionalProperties : undefined));
      return next ? branches(next, root) : [];
    });
  }
  if (current.length === 0) return undefined;
  const fields = new Map<string, string>();
  for (const schema of current)
    for (const [name, field] of Object.entries(schema.properties ?? {}))
      fields.set(name, branches(field, root).find(({ description }) => description)?.description ?? "");
  return {
    description: current.find(({ description }) => description)?.description ?? "",
    type: [...new Set(current.flatMap(({ type }) => type ?? []))].join(" or "),
    values: current
      .flatMap((schema) => [...(schema.enum ?? []), ...(schema.const === undefined ? [] : [schema.const])])
      .map(String),
    fields: [...fields].map(([name, description]) => ({ name, description })),
  };
}

/** Returns the schema and all of its alternatives and references. */
export function branches(schema: JsonSchema, root: JsonSchema): JsonSchema[] {
  const target = schema.$ref?.startsWith("#/$defs/") ? root.$defs?.[schema.$ref.slice("#/$defs/".length)] : undefined;
  const inner = [
    ...(schema.anyOf ?? []),
    ...(schema.oneOf ?? []),
    ...(schema.allOf ?? []),
    ...(target ? [target] : []),
  ];
  return [schema, ...inner.flatMap((one) => branches(one, root))];
}
