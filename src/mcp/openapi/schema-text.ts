/**
 * Schemas of an OpenAPI description as schemas of a tool: references become `$defs` of the tool itself, also where they
 * go in circles, and what OpenAPI 3.0 says in its own way (`nullable`, boolean `exclusiveMinimum`) is said as JSON Schema.
 */
import { putMember } from "../../json/put-member.ts";
import { isObject, type Json, type OpenApiDocument, pointedTo } from "./document.ts";

/** A tool whose schema is longer is not worth its tokens: the body is then any object. */
const MAX_SCHEMA_CHARS = 64 * 1024;
const MAX_SCHEMA_DEPTH = 64;

/** Not for validation, or about other formats. */
const DROPPED: ReadonlySet<string> = new Set([
  "xml",
  "externalDocs",
  "discriminator",
  "example",
  "nullable",
  "deprecated",
]);

export class SchemaTooLarge extends Error {}

/** Collects what the schemas of one tool refer to. */
export class ToolSchemas {
  readonly definitions: Record<string, unknown> = Object.create(null);
  readonly #document: OpenApiDocument;
  readonly #names = new Map<string, string>();
  #chars = 0;

  constructor(document: OpenApiDocument) {
    this.#document = document;
  }

  /** Throws for references that lead nowhere, and SchemaTooLarge. */
  converted(schema: unknown, depth = 0): unknown {
    if (depth > MAX_SCHEMA_DEPTH) throw new SchemaTooLarge("nested too deeply");
    if (Array.isArray(schema)) return schema.map((one) => this.converted(one, depth + 1));
    if (!isObject(schema)) {
      this.#count(typeof schema === "string" ? schema.length : 4);
      return schema;
    }
    if (typeof schema.$ref === "string") return { $ref: `#/$defs/${this.#defined(schema.$ref)}` };
    const result: Record<string, unknown> = {};
    for (const [key, value] of Object.entries(schema)) {
      if (DROPPED.has(key) || key.startsWith("x-")) continue;
      this.#count(key.length + 4);
      // Names of properties are not keywords: none of them is dropped.
      const isNames = key === "properties" && isObject(value);
      putMember(result, key, isNames ? this.#properties(value, depth) : this.converted(value, depth + 1));
    }
    return withoutOldWords(schema, result);
  }

  #properties(properties: Json, depth: number): Json {
    const result: Record<string, unknown> = Object.create(null);
    for (const [key, value] of Object.entries(properties)) {
      this.#count(key.length + 4);
      result[key] = this.converted(value, depth + 1);
    }
    return result;
  }

  #defined(reference: string): string {
    const known = this.#names.get(reference);
    if (known !== undefined) return known;
    const base = (reference.split("/").pop() ?? "").replace(/[^A-Za-z0-9_.-]/g, "_") || "schema";
    let name = base;
    for (let i = 2; Object.hasOwn(this.definitions, name); i++) name = `${base}_${i}`;
    this.#names.set(reference, name);
    // Before it is filled: it may refer to itself.
    this.definitions[name] = {};
    this.definitions[name] = this.converted(pointedTo(this.#document, reference));
    return name;
  }

  #count(chars: number): void {
    this.#chars += chars;
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
