/**
 * Reads from a schema which values a parameter or form field can carry. Outside of JSON, a value is sent as text, so each
 * place carries one kind of value only: otherwise the server could read another value from the text than rules read in
 * the arguments.
 */
import { ExpectedError } from "../../base/errors.ts";
import { isObject, type Json, type OpenApiDocument, resolved } from "./document.ts";

export type ScalarType = "string" | "number" | "integer" | "boolean";

export type ValueShape =
  | { readonly kind: "scalar"; readonly types: readonly ScalarType[] }
  | { readonly kind: "list"; readonly items: readonly ScalarType[] | "objects" }
  | {
      readonly kind: "map";
      readonly members: Readonly<Record<string, readonly ScalarType[]>>;
      /** The types of other members. Undefined if only the declared members are allowed. */
      readonly more: readonly ScalarType[] | undefined;
    }
  /** JSON text. `isAny` is false if the value must be an object. */
  | { readonly kind: "json"; readonly isAny: boolean };

export interface ShapeOptions {
  /** If the schema allows several kinds, the first of these is used. */
  readonly prefers: readonly ("list" | "scalar" | "map")[];
  /** Members become parameters of their own, so that only declared members are allowed by default. */
  readonly spreads?: boolean;
  /** Objects are sent as JSON text. */
  readonly isForm?: boolean;
  /** Called with the size of what is read. Throws an Error if the schema is too large. */
  count(chars: number): void;
}

const MAX_DEPTH = 32;

export class ArgumentProblem extends ExpectedError {}

interface Kinds {
  readonly scalars: Set<ScalarType>;
  list: { items: unknown } | undefined;
  map: { readonly properties: Map<string, unknown>; more: unknown } | undefined;
  isNullable: boolean;
}

/** Returns the shape, and whether the schema allows other values too. */
export function readShape(
  document: OpenApiDocument,
  schema: unknown,
  options: ShapeOptions,
): { readonly shape: ValueShape; readonly isNarrower: boolean } {
  const kinds = kindsOf(document, schema, options);
  const { scalars, list, map } = kinds;
  const isUntyped = scalars.size === 0 && list === undefined && map === undefined;
  const kind = options.prefers.find((one) => (one === "scalar" ? scalars.size > 0 : one === "list" ? list : map));
  const count = (scalars.size > 0 ? 1 : 0) + (list ? 1 : 0) + (map ? 1 : 0);
  const types = scalarTypes(scalars);
  const isNarrower = isUntyped || count > 1 || kinds.isNullable || types.length < scalars.size;
  if (kind === "list") return { shape: { kind, items: itemTypes(document, list?.items, options) }, isNarrower };
  if (kind !== "map" || map === undefined) return { shape: { kind: "scalar", types }, isNarrower };
  if (options.isForm === true) return { shape: { kind: "json", isAny: false }, isNarrower };
  const members: Record<string, readonly ScalarType[]> = Object.create(null);
  for (const [name, property] of map.properties) members[name] = memberTypes(document, property, options);
  const isClosed = map.more === false || (map.more === undefined && options.spreads === true);
  const more = isClosed ? undefined : isObject(map.more) ? memberTypes(document, map.more, options) : STRING;
  return { shape: { kind: "map", members, more }, isNarrower };
}

const STRING: readonly ScalarType[] = ["string"];

/** A number next to strings would be read as a string, so it is not allowed. */
function scalarTypes(types: ReadonlySet<ScalarType>): readonly ScalarType[] {
  return types.size === 0 || types.has("string") ? STRING : [...types];
}

/** Returns no type for members that cannot be sent as text. */
function memberTypes(document: OpenApiDocument, schema: unknown, options: ShapeOptions): readonly ScalarType[] {
  const { scalars, list, map } = kindsOf(document, schema, options);
  return scalars.size === 0 && (list !== undefined || map !== undefined) ? [] : scalarTypes(scalars);
}

function itemTypes(
  document: OpenApiDocument,
  schema: unknown,
  options: ShapeOptions,
): readonly ScalarType[] | "objects" {
  const types = memberTypes(document, schema, options);
  return types.length === 0 && options.isForm === true ? "objects" : types;
}

function kindsOf(document: OpenApiDocument, schema: unknown, { count }: ShapeOptions): Kinds {
  const kinds: Kinds = { scalars: new Set(), list: undefined, map: undefined, isNullable: false };
  const seen = new Set<unknown>();
  const read = (value: unknown, depth: number): void => {
    count(4);
    if (!isObject(value) || depth > MAX_DEPTH) return;
    const own = resolved(document, value);
    if (seen.has(own)) return;
    seen.add(own);
    if (own.nullable === true) kinds.isNullable = true;
    for (const type of typesOf(own)) addType(kinds, type, own, count);
    for (const list of [own.allOf, own.anyOf, own.oneOf])
      if (Array.isArray(list)) for (const one of list) read(one, depth + 1);
  };
  read(schema, 0);
  return kinds;
}

function typesOf(schema: Json): unknown[] {
  if (schema.type !== undefined) return Array.isArray(schema.type) ? schema.type : [schema.type];
  if (isObject(schema.properties) || schema.additionalProperties !== undefined) return ["object"];
  if (schema.items !== undefined) return ["array"];
  const values = Array.isArray(schema.enum) ? schema.enum : Object.hasOwn(schema, "const") ? [schema.const] : [];
  return values.map((value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value));
}

function addType(kinds: Kinds, type: unknown, schema: Json, count: (chars: number) => void): void {
  count(4);
  if (type === "null") kinds.isNullable = true;
  else if (type === "string" || type === "number" || type === "integer" || type === "boolean") kinds.scalars.add(type);
  else if (type === "array") kinds.list ??= { items: schema.items };
  else if (type === "object") {
    kinds.map ??= { properties: new Map(), more: undefined };
    if (isObject(schema.properties))
      for (const [name, property] of Object.entries(schema.properties)) {
        count(name.length);
        kinds.map.properties.set(name, property);
      }
    kinds.map.more ??= schema.additionalProperties;
  }
}

/** Returns the text of a string, number, or boolean. Throws `ArgumentProblem` if the value has another type. */
export function scalarText(types: readonly ScalarType[], value: unknown, where: string): string {
  if (typeof value === "string" && types.includes("string")) {
    if (!value.isWellFormed()) throw new ArgumentProblem(`${where} is not valid Unicode`);
    return value;
  }
  if (typeof value === "boolean" && types.includes("boolean")) return String(value);
  if (typeof value === "number") {
    requireFinite(value, where);
    if (types.includes("number")) return String(value);
    if (types.includes("integer") && Number.isInteger(value)) {
      if (!Number.isSafeInteger(value))
        throw new ArgumentProblem(`${where} is an integer beyond 2^53, which cannot be read exactly`);
      return String(value);
    }
  }
  if (types.length === 0) throw new ArgumentProblem(`${where} is nested too deeply for its place`);
  throw wrongType(where, types.join(" or "), value);
}

/** `JSON.parse` reads `1e400` as infinity, which has no text that servers read as a number. */
function requireFinite(value: number, where: string): void {
  if (!Number.isFinite(value)) throw new ArgumentProblem(`${where} is a number beyond 1.8e308, which cannot be sent`);
}

/** Returns JSON text that has the same values. */
export function jsonText(value: unknown, where: string): string {
  return JSON.stringify(value, (_name, member: unknown) => {
    if (typeof member === "number") requireFinite(member, `a number of ${where}`);
    return member;
  });
}

export function listItems(value: unknown, where: string): readonly unknown[] {
  if (!Array.isArray(value)) throw wrongType(where, "list", value);
  if (value.length === 0) throw new ArgumentProblem(`${where} is an empty list, which cannot be sent: leave it out`);
  return value;
}

/** Returns the texts of the members. Throws `ArgumentProblem` if a member is not allowed or has another type. */
export function mapTexts(
  { members, more }: Extract<ValueShape, { kind: "map" }>,
  value: unknown,
  where: string,
): [string, string][] {
  if (!isObject(value)) throw wrongType(where, "object", value);
  const texts = Object.entries(value).map(([key, member]): [string, string] => {
    const types = Object.hasOwn(members, key) ? members[key] : more;
    const name = `the member "${key.slice(0, 100)}" of ${where}`;
    if (types === undefined) throw new ArgumentProblem(`${name} is not known`);
    if (!Object.hasOwn(members, key) && !FREE_NAME.test(key)) throw new ArgumentProblem(`${name} has an invalid name`);
    return [key, scalarText(types, member, name)];
  });
  if (texts.length === 0) throw new ArgumentProblem(`${where} is an empty object, which cannot be sent: leave it out`);
  return texts;
}

/** Names that the description does not contain. Servers split names at other characters. */
export const FREE_NAME = /^[\p{L}\p{N}_.-]{1,200}$/u;

export function wrongType(where: string, expected: string, value: unknown): ArgumentProblem {
  const isNull = value === null ? ". Leave it out instead of sending null" : "";
  return new ArgumentProblem(`${where} must be ${/^[aeio]/.test(expected) ? "an" : "a"} ${expected}${isNull}`);
}
