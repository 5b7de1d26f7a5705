/**
 * Configuration as it may be shown (dump, trace, UI): as written, with secrets and the values of sensitive headers
 * replaced. What is secret is said by the schema; which headers are sensitive, by the redaction.
 */
import { z } from "zod";
import { isSecretSchema } from "../../core/schema.ts";
import { putMember } from "../../lib/text/put-member.ts";
import { REDACTED, type Redaction, shownUrl } from "../../trace/redact.ts";
import { unwrap } from "./schema-walk.ts";

/** In a list of headers (matches of routes, HTTPRoute documents) the name stands beside the value. */
export const VALUES_BESIDE_NAME: readonly string[] = ["value", "exact", "regex"];

/** Where a file may be named, its text may stand as well. */
const PRIVATE_KEY = /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----/;

export function shownConfig(schema: z.ZodType, value: unknown, redaction: Redaction): unknown {
  return shown([schema], value, redaction);
}

function shown(schemas: readonly z.ZodType[], value: unknown, redaction: Redaction): unknown {
  if (schemas.some((schema) => isSecret(schema)) && value !== undefined && value !== null) return REDACTED;
  const inner = schemas.flatMap(unwrap);
  if (Array.isArray(value)) {
    const elements = inner.flatMap((schema) => (schema instanceof z.ZodArray ? [schema.element as z.ZodType] : []));
    return value.map((element) => shown(elements, element, redaction));
  }
  if (typeof value === "string") return PRIVATE_KEY.test(value) ? REDACTED : shownUrl(value);
  if (typeof value !== "object" || value === null) return value;
  const hidesValues = "name" in value && typeof value.name === "string" && redaction.isSensitive(value.name);
  const result: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(value)) {
    const fields = inner.flatMap((schema) => fieldOf(schema, key));
    // A value, or an expression, that sets a sensitive header is as secret as the header.
    const isHidden = redaction.isSensitive(key) || (hidesValues && VALUES_BESIDE_NAME.includes(key));
    putMember(result, key, typeof field === "string" && isHidden ? REDACTED : shown(fields, field, redaction));
  }
  return result;
}

function fieldOf(schema: z.ZodType, key: string): z.ZodType[] {
  if (schema instanceof z.ZodObject) {
    return Object.hasOwn(schema.shape, key) ? [(schema.shape as Record<string, z.ZodType>)[key] as z.ZodType] : [];
  }
  return schema instanceof z.ZodRecord ? [schema.valueType as z.ZodType] : [];
}

/** The mark may sit on the schema or on what it wraps (optional, default, transform). */
function isSecret(schema: z.ZodType): boolean {
  return isSecretSchema(schema) || unwrap(schema).some(isSecretSchema);
}
