/**
 * A schema of ours → the structural schema that an API server takes. What it cannot express (unions, key patterns) is
 * left to the gateway, which reports it in the status. An API server drops fields that its schema does not name, and
 * nulls: a misspelt protection would be gone before the gateway could close its target. So `isOpen` says where unknown
 * fields and nulls must come through.
 */

import { z } from "zod";
import { exactlyOneOfFields, isSecretSchema, localUseOf } from "../../core/schema.ts";
import { isObject } from "../text/value-shapes.ts";

export type Schema = Record<string, unknown>;

export interface Rule {
  readonly rule: string;
  readonly message: string;
}

export interface StructuralOptions {
  /** Whether unknown fields of the object at this path, and nulls at it, must come through. */
  isOpen(path: string): boolean;
  /** Keywords that the object at a path has besides, for example validation rules. */
  readonly extra: Readonly<Record<string, Schema>>;
}

/** Keywords that mean the same in JSON schema and in a structural schema. */
const KEPT = [
  "description",
  "type",
  "enum",
  "pattern",
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
  "minimum",
  "maximum",
  "required",
  "default",
];

export const ANYTHING = { "x-kubernetes-preserve-unknown-fields": true };

const SECRET_REF = {
  type: "object",
  required: ["secretRef"],
  properties: {
    secretRef: {
      description: "A key of a Secret; one of another namespace needs a ReferenceGrant there.",
      type: "object",
      required: ["name", "key"],
      properties: {
        name: { type: "string", minLength: 1, maxLength: 253 },
        namespace: { type: "string", minLength: 1, maxLength: 63 },
        key: { type: "string", minLength: 1, maxLength: 253 },
      },
    },
  },
};

export function structuralSchema(schema: z.ZodType, options: StructuralOptions): Schema {
  const json = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
    reused: "inline",
    override({ zodSchema, jsonSchema }) {
      const own = zodSchema as unknown as z.ZodType;
      const local = localUseOf(own);
      const exactlyOne = exactlyOneOfFields(own);
      const fields = jsonSchema as Schema;
      if (isSecretSchema(own)) fields.isSecret = true;
      if (local?.isReadable) fields.isReadable = true;
      else if (local && !local.isLocal) fields.isLocal = true;
      if (exactlyOne) fields.exactlyOne = exactlyOne;
    },
  }) as Schema;
  return structural(json, "", options);
}

function structural(schema: Schema, path: string, options: StructuralOptions): Schema {
  const { type } = schema;
  const extra = {
    ...(options.isOpen(path) && path !== "" && !path.endsWith("[]") ? { nullable: true } : {}),
    ...options.extra[path],
  };
  // The text itself, or where it stands: no type that an API server has.
  if (schema.isSecret === true) return { ...described(schema, "A text, or `{secretRef}`."), ...ANYTHING, ...extra };
  if (schema.isReadable === true) return { ...described(schema, ""), ...SECRET_REF, ...extra };
  const union = [schema.anyOf, schema.oneOf].find(Array.isArray) as Schema[] | undefined;
  if (union) return { ...kept(schema), ...structuralUnion(union), ...extra };
  if ("const" in schema) return { ...kept(schema), type: typeof schema.const, enum: [schema.const], ...extra };
  if (type === "object") return { ...objectSchema(schema, path, options), ...extra };
  if (type === "array")
    return { ...kept(schema), items: structural((schema.items ?? {}) as Schema, `${path}[]`, options), ...extra };
  if (type === "integer") return { ...kept(schema), format: "int64", ...extra };
  if (type !== undefined) return { ...kept(schema), ...extra };
  return { ...kept(schema), ...ANYTHING, ...extra };
}

function objectSchema(schema: Schema, path: string, options: StructuralOptions): Schema {
  const { additionalProperties } = schema;
  const named = isObject(schema.properties)
    ? Object.entries(schema.properties as Record<string, Schema>).filter(([, field]) => field.isLocal !== true)
    : undefined;
  const below = (name: string): string => (path === "" ? name : `${path}.${name}`);
  const properties =
    named && Object.fromEntries(named.map(([name, field]) => [name, structural(field, below(name), options)]));
  // An API server takes either named fields or a map, not both.
  const isMap = isObject(additionalProperties);
  return {
    ...kept(schema),
    ...(properties ? { properties } : {}),
    ...((isMap && properties) || (options.isOpen(path) && !isMap) ? ANYTHING : {}),
    ...(isMap && !properties
      ? { additionalProperties: structural(additionalProperties as Schema, `${path}.*`, options) }
      : {}),
    ...(properties ? choice(schema.exactlyOne, properties) : {}),
  };
}

/**
 * "Exactly one of": as a rule with a message between two fields that have a type, by the plain keyword elsewhere. A rule
 * over more of them costs more than an API server grants inside of lists.
 */
function choice(exactlyOne: unknown, properties: Readonly<Record<string, Schema>>): Schema {
  if (!Array.isArray(exactlyOne)) return {};
  const names = (exactlyOne as string[]).filter((name) => Object.hasOwn(properties, name));
  if (names.length < 2) return names.length === 0 ? {} : { required: names };
  if (names.length > 2 || names.some((name) => properties[name]?.type === undefined))
    return { oneOf: names.map((name) => ({ required: [name] })) };
  const rule = names.map((name) => `has(self.${name})`).join(" != ");
  return validations({ rule, message: `exactly one of ${names.join(", ")} is required` });
}

export function validations(...rules: readonly Rule[]): Schema {
  return { "x-kubernetes-validations": rules };
}

/** A choice between fixed values of one type stays a choice; any other union is checked by the gateway only. */
function structuralUnion(options: readonly Schema[]): Schema {
  const values = options.flatMap((option) =>
    "const" in option ? [option.const] : Array.isArray(option.enum) ? option.enum : [undefined],
  );
  const types = new Set(values.map((value) => typeof value));
  const [type] = types;
  if (types.size !== 1 || type === "undefined" || type === "object") return ANYTHING;
  return { type: type === "number" ? "integer" : type, enum: values };
}

function described({ description }: Schema, more: string): Schema {
  const text = [description, more].filter((one) => typeof one === "string" && one !== "").join(" ");
  return text === "" ? {} : { description: text };
}

function kept(schema: Schema): Schema {
  const result: Schema = {};
  // A default is given as the gateway holds it: a duration in milliseconds is not one that a document could write.
  const { default: value, ...rest } = schema;
  if (typeof value === "number" && schema.type === "string") return kept(rest);
  for (const keyword of KEPT)
    if (schema[keyword] !== undefined && !isSafeBound(schema[keyword])) result[keyword] = schema[keyword];
  return result;
}

/** "A whole number" is written as the range of exact doubles, which says nothing to a reader. */
function isSafeBound(value: unknown): boolean {
  return value === Number.MAX_SAFE_INTEGER || value === Number.MIN_SAFE_INTEGER;
}
