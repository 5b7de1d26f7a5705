/**
 * Redacts a configuration value for display, and collects the hidden credentials so that other outputs can redact them
 * too.
 */
import { z } from "zod";
import { isExpressionSchema, isSecretSchema } from "../../core/schema.ts";
import { putMember } from "../../json/json.ts";
import { credentialsIn, REDACTED, type Redaction, redactArguments, redactText } from "../../record/trace/redact.ts";
import { unwrap } from "./schema-walk.ts";

/** In a list of headers (route matches, HTTPRoute documents), the name is next to the value. */
const VALUES_BESIDE_NAME: readonly string[] = ["value", "exact", "regex"];

const HEADER_MAPS: readonly string[] = ["set", "add", "headers"];

export function shownConfig(schema: z.ZodType, value: unknown, redaction: Redaction): unknown {
  return new Walk(redaction).shown([schema], value, undefined);
}

/** Returns the credentials that `shownConfig` hides. */
export function secretsInConfig(schema: z.ZodType, value: unknown, redaction: Redaction): string[] {
  const walk = new Walk(redaction);
  walk.shown([schema], value, undefined);
  return walk.hidden;
}

class Walk {
  readonly hidden: string[] = [];
  readonly #redaction: Redaction;

  constructor(redaction: Redaction) {
    this.#redaction = redaction;
  }

  /** `map` is the name of the field that contains the value. */
  shown(schemas: readonly z.ZodType[], value: unknown, map: string | undefined): unknown {
    if (schemas.some((schema) => isSecret(schema)) && value !== undefined && value !== null) return this.#hide(value);
    const inner = schemas.flatMap(unwrap);
    if (Array.isArray(value)) {
      const elements = inner.flatMap((schema) => (schema instanceof z.ZodArray ? [schema.element as z.ZodType] : []));
      const isArguments = value.every((element) => typeof element === "string") && !elements.some(isSecret);
      if (!isArguments) return value.map((element) => this.shown(elements, element, undefined));
      const written = value as string[];
      if (elements.some(isExpression)) return written.map((source) => this.#expression(source));
      return redactArguments(written, this.hidden).map((shown) => this.#redaction.text(shown));
    }
    if (typeof value === "string") return schemas.some(isExpression) ? this.#expression(value) : this.#string(value);
    if (typeof value !== "object" || value === null) return value;
    const name = "name" in value && typeof value.name === "string" ? value.name : undefined;
    const result: Record<string, unknown> = {};
    for (const [key, field] of Object.entries(value)) {
      const fields = inner.flatMap((schema) => fieldOf(schema, key));
      putMember(result, key, this.#field(inner, fields, { key, field, name, map }));
    }
    return result;
  }

  #field(
    owners: readonly z.ZodType[],
    fields: readonly z.ZodType[],
    { key, field, name, map }: { key: string; field: unknown; name: string | undefined; map: string | undefined },
  ): unknown {
    if (typeof field !== "string" || fields.some(isSecret)) return this.shown(fields, field, key);
    // A value or expression that sets or matches a sensitive header is also secret.
    const header = headerOf(key, name, map);
    if (header !== undefined && this.#redaction.isSensitive(header)) return this.#hide(field);
    if (!isNamedField(owners, key) && this.#redaction.isSensitive(key)) return this.#hide(field);
    if (fields.some(isExpression)) return this.#expression(field, header);
    if (header !== undefined) return this.#redaction.headerSetting(header, field);
    return this.#string(field);
  }

  #string(value: string): string {
    return this.#redaction.text(redactText(value, this.hidden));
  }

  #expression(source: string, header?: string): string {
    return this.#redaction.text(this.#redaction.expression(source, { header, found: this.hidden }));
  }

  #hide(value: unknown): string {
    if (typeof value === "string") this.hidden.push(...credentialsIn(value));
    else if (typeof value === "object" && value !== null) for (const one of Object.values(value)) this.#hide(one);
    return REDACTED;
  }
}

export function headerOf(key: string, name: string | undefined, map: string | undefined): string | undefined {
  if (VALUES_BESIDE_NAME.includes(key)) return name;
  return map !== undefined && HEADER_MAPS.includes(map) ? key : undefined;
}

/**
 * Declared fields are redacted by their schema and not by their name, because `rateLimit.local[].key` is an expression.
 */
export function isNamedField(owners: readonly z.ZodType[], key: string): boolean {
  return owners.some((schema) => schema instanceof z.ZodObject && Object.hasOwn(schema.shape, key));
}

function fieldOf(schema: z.ZodType, key: string): z.ZodType[] {
  if (schema instanceof z.ZodObject) {
    return Object.hasOwn(schema.shape, key) ? [(schema.shape as Record<string, z.ZodType>)[key] as z.ZodType] : [];
  }
  return schema instanceof z.ZodRecord ? [schema.valueType as z.ZodType] : [];
}

/** The mark may be on the schema or on the schema that it wraps. */
function isSecret(schema: z.ZodType): boolean {
  return isSecretSchema(schema) || unwrap(schema).some(isSecretSchema);
}

export function isExpression(schema: z.ZodType): boolean {
  return isExpressionSchema(schema) || unwrap(schema).some(isExpressionSchema);
}
