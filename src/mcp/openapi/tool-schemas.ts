/**
 * Converts the schemas of a description to the JSON Schema of tools. References become `$defs`, and the keywords of
 * OpenAPI 3.0 become those of JSON Schema.
 */

import { UniqueNames } from "../../base/unique-names.ts";
import { putMember } from "../../json/json.ts";
import { isObject, type Json, type OpenApiDocument, pointedTo, resolved } from "./document.ts";
import type { ValueShape } from "./value-shape.ts";

/** Limits the schemas of one tool, because longer ones would cost the model too many tokens. */
const MAX_SCHEMA_CHARS = 64 * 1024;
const MAX_SCHEMA_DEPTH = 64;
/** Limits the schemas of all tools together, because operations can share large schemas by reference. */
const MAX_TOTAL_SCHEMA_CHARS = 8 * 1024 * 1024;

/** Counts the schemas of all tools of one description. */
export class SchemaBudget {
  #leftChars = MAX_TOTAL_SCHEMA_CHARS;

  take(chars: number): void {
    this.#leftChars -= chars;
    if (this.#leftChars < 0) throw new Error("the schemas of all operations together are too large");
  }
}

/** JSON Schema validators do not use these keywords. `nullable` is converted separately. */
const DROPPED: ReadonlySet<string> = new Set([
  "xml",
  "externalDocs",
  "discriminator",
  "example",
  "nullable",
  "deprecated",
]);

/** Every value counts, even an empty one. */
const VALUE_CHARS = 4;

export class SchemaTooLarge extends Error {}

export class ToolSchemas {
  readonly definitions: Record<string, unknown> = Object.create(null);
  readonly #document: OpenApiDocument;
  readonly #names = new Map<string, string>();
  readonly #definitionNames = new UniqueNames();
  readonly #budget: SchemaBudget;
  #chars = 0;

  constructor(document: OpenApiDocument, budget: SchemaBudget) {
    this.#document = document;
    this.#budget = budget;
  }

  /** Throws `SchemaTooLarge` if a limit is exceeded, or another Error if a reference cannot be resolved. */
  converted(schema: unknown, depth = 0): unknown {
    if (depth > MAX_SCHEMA_DEPTH) throw new SchemaTooLarge("nested too deeply");
    this.count(VALUE_CHARS);
    if (Array.isArray(schema)) return schema.map((one) => this.converted(one, depth + 1));
    if (!isObject(schema)) {
      if (typeof schema === "string") this.count(schema.length);
      return schema;
    }
    if (typeof schema.$ref === "string") {
      // Resolving a reference costs time, so all of it counts.
      this.count(schema.$ref.length);
      const name = this.#defined(schema.$ref);
      this.count(name.length);
      return { $ref: `#/$defs/${name}` };
    }
    const result: Record<string, unknown> = {};
    for (const [key, value] of Object.entries(schema)) {
      this.count(key.length + VALUE_CHARS);
      if (DROPPED.has(key) || key.startsWith("x-")) continue;
      // Property names are not keywords, so none of them is dropped.
      const isNames = key === "properties" && isObject(value);
      putMember(result, key, isNames ? this.#properties(value, depth) : this.converted(value, depth + 1));
    }
    return withoutOldWords(schema, result);
  }

  #properties(properties: Json, depth: number): Json {
    const result: Record<string, unknown> = Object.create(null);
    for (const [key, value] of Object.entries(properties)) {
      this.count(key.length + VALUE_CHARS);
      result[key] = this.converted(value, depth + 1);
    }
    return result;
  }

  #defined(reference: string): string {
    const known = this.#names.get(reference);
    if (known !== undefined) return known;
    const base = (reference.split("/").pop() ?? "").replace(/[^A-Za-z0-9_.-]/g, "_") || "schema";
    const name = this.#definitionNames.next(base);
    this.#names.set(reference, name);
    // The name is registered before the conversion, because a schema may reference itself.
    this.definitions[name] = {};
    this.definitions[name] = this.converted(pointedTo(this.#document, reference));
    return name;
  }

  /** Throws `SchemaTooLarge` or another Error if a limit is exceeded. */
  count(chars: number): void {
    this.#chars += chars;
    this.#budget.take(chars);
    if (this.#chars > MAX_SCHEMA_CHARS) throw new SchemaTooLarge("the schema is too large");
  }
}

function withoutOldWords(schema: Json, result: Record<string, unknown>): Record<string, unknown> {
  for (const [flag, bound] of [
    ["exclusiveMinimum", "minimum"],
    ["exclusiveMaximum", "maximum"],
  ] as const) {
    if (typeof schema[flag] !== "boolean") continue;
    delete result[flag];
    if (schema[flag] !== true || schema[bound] === undefined) continue;
    result[flag] = schema[bound];
    delete result[bound];
  }
  if (schema.nullable !== true) return result;
  if (typeof result.type === "string") {
    result.type = [result.type, "null"];
    if (Array.isArray(result.enum) && !result.enum.includes(null)) result.enum = [...result.enum, null];
    return result;
  }
  return { anyOf: [result, { type: "null" }] };
}

/**
 * Restricts a schema to the values that its place can carry, so that models do not send others. Only the schema itself
 * is restricted, not those of items and members.
 */
export function narrowedSchema(document: OpenApiDocument, schema: unknown, shape: ValueShape): unknown {
  if (shape.kind === "json" || !isObject(schema)) return schema;
  const own: Record<string, unknown> = { ...resolved(document, schema) };
  const branches = [own.anyOf, own.oneOf].flatMap((list) => (Array.isArray(list) ? list : []));
  for (const key of ["type", "nullable", "anyOf", "oneOf"]) delete own[key];
  if (own.default === null) delete own.default;
  if (Array.isArray(own.enum)) own.enum = own.enum.filter((value) => value !== null);
  const types: readonly string[] =
    shape.kind === "scalar" ? shape.types : shape.kind === "list" ? ["array"] : ["object"];
  const fitting = branches
    .map((branch) => resolved(document, branch))
    .filter(({ type }) => types.some((one) => type === one || (Array.isArray(type) && type.includes(one))));
  const branch = fitting.length === 1 ? fitting[0] : undefined;
  return { ...own, ...branch, type: types.length === 1 ? types[0] : types };
}
