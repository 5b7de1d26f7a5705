/**
 * Suggests the right shape for a value of the wrong shape, for example `timeout: { requestTimeout: 5s }` for `timeout:
 * 5s`.
 */
import { z } from "zod";
import { nearestName } from "../../cel/values/nearest-name.ts";
import { below, knownKeys, unwrap } from "./schema-walk.ts";

/** With more suggestions the reader needs the reference, not a hint. */
const MAX_SUGGESTIONS = 3;

/** `name` is the last part of the path: a field name, or an index in a list. Returns "" or `: write …`. */
export function shapeHint(name: PropertyKey | undefined, value: unknown, schemas: readonly z.ZodType[]): string {
  const written = [...new Set(schemas.flatMap((schema) => corrections(value, schema)))];
  if (written.length === 0 || written.length > MAX_SUGGESTIONS) return "";
  const field = typeof name === "string" ? `${name}: ` : "";
  return `: write ${written.map((one) => `\`${field}${one}\``).join(" or ")}`;
}

function corrections(value: unknown, schema: z.ZodType): string[] {
  if (schema instanceof z.ZodArray) return listCorrections(value, unwrap(schema.element as z.ZodType));
  return schema instanceof z.ZodObject ? objectCorrections(value, schema) : [];
}

function listCorrections(value: unknown, elements: readonly z.ZodType[]): string[] {
  if (!isObject(value)) return elements.some((one) => accepts(one, value)) ? [`[${quoted(value)}]`] : [];
  const known = knownKeys(elements);
  const [first] = Object.keys(value);
  if (first === undefined) return [];
  if (known.includes(first)) return [`[{ ${first}: … }]`];
  return known.includes("name") ? [`[{ name: ${first}, … }]`] : [];
}

function objectCorrections(value: unknown, schema: z.ZodObject): string[] {
  if (typeof value === "string") {
    const key = nearestName(value, Object.keys(schema.shape));
    const fields = key === undefined ? [] : below([schema], key).filter((field) => field instanceof z.ZodObject);
    if (fields.length > 0) return [`{ ${key}: ${fields.some((field) => accepts(field, {})) ? "{}" : "{ … }"} }`];
  }
  if ((value === true || value === null) && accepts(schema, {})) return ["{}"];
  if (isObject(value) || value === null || typeof value === "boolean") return [];
  const fields = fittingFields(schema, value);
  if (fields.length > 0 || typeof value !== "number") return fields.map((key) => `{ ${key}: ${quoted(value)} }`);
  // The number may be a duration without its unit.
  return fittingFields(schema, `${value}s`).map((key) => `{ ${key}: ${value}s }`);
}

/** Returns the fields that accept the value: the required fields, or all of them if none is required. */
function fittingFields(schema: z.ZodObject, value: unknown): string[] {
  const fields = Object.entries(schema.shape as Record<string, z.ZodType>).filter(([, field]) => accepts(field, value));
  const required = fields.filter(([, field]) => !accepts(field, undefined));
  return (required.length > 0 ? required : fields).map(([key]) => key);
}

function accepts(schema: z.ZodType, value: unknown): boolean {
  return schema.safeParse(value).success;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Values other than durations, short numbers, and booleans may be secrets, so they are not shown. */
function quoted(value: unknown): string {
  if (Array.isArray(value)) return "[…]";
  const text = String(value);
  const isHarmless = typeof value === "boolean" || /^\d{1,6}(?:ms|s|m|h|d)?$/.test(text);
  return isHarmless ? text : "…";
}
