/**
 * Reads the parameters and the body of an operation. What the gateway cannot send exactly as the description declares it
 * is not offered: an optional parameter or field is skipped, and an operation that requires it is left out.
 */
import {
  FORWARDING_HEADERS,
  foldHeaderName,
  includesHeader,
  isSameHeader,
  MESSAGE_HEADERS,
  OVERRIDE_HEADERS,
} from "../../http/header-rules.ts";
import { isObject, type Json, type OpenApiDocument, resolved } from "./document.ts";
import { narrowedSchema, type ToolSchemas } from "./tool-schemas.ts";
import { readShape, type ValueShape } from "./value-shape.ts";

export type Place = "path" | "query" | "header" | "cookie";
type Style = "simple" | "label" | "matrix" | "form" | "spaceDelimited" | "pipeDelimited" | "deepObject";

/** Describes how a value is written under a name. */
export interface Encoding {
  readonly name: string;
  readonly style: Style;
  readonly explode: boolean;
  readonly allowReserved: boolean;
  readonly shape: ValueShape;
}

export interface Parameter extends Encoding {
  /** The name of the tool's argument, with a suffix if another argument has the same name. */
  readonly argument: string;
  readonly in: Place;
  readonly isRequired: boolean;
}

export type RequestBody =
  | { readonly kind: "json" | "text"; readonly type: string; readonly isRequired: boolean }
  | {
      readonly kind: "form" | "multipart";
      readonly type: string;
      readonly isRequired: boolean;
      readonly fields: Readonly<Record<string, Encoding>>;
      /** Other fields are allowed. They are strings. */
      readonly isOpen: boolean;
    };

export interface ReservedName {
  readonly in: "header" | "query" | "cookie";
  /** All names of the place if undefined. */
  readonly name: string | undefined;
}

const STYLES: Readonly<Record<Place, readonly Style[]>> = {
  path: ["simple", "label", "matrix"],
  query: ["form", "spaceDelimited", "pipeDelimited", "deepObject"],
  header: ["simple"],
  cookie: ["form"],
};

/**
 * Parameters with these header names are ignored, because the gateway or a proxy sets them or because they change the
 * request. OpenAPI 3 requires this for `accept`, `content-type`, and `authorization`.
 */
const IGNORED_HEADERS: ReadonlySet<string> = new Set([
  ...MESSAGE_HEADERS,
  ...FORWARDING_HEADERS,
  ...["accept", "accept-encoding", "authorization", "cookie", "date", "expect", "host", "origin"],
  ...OVERRIDE_HEADERS,
  ...["traceparent", "tracestate"],
]);
const IGNORED_PREFIXES = /^(?:content|proxy|mcp|x-gateway|x-forwarded|sec)[^a-z0-9]/i;
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;
const COOKIE_NAME = /^[\w!#$&'*+.^`|~-]+$/;
/** A name in a multipart form is sent in quotes, and servers disagree on how to escape it. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is rejected.
const UNQUOTABLE = /["\\\x00-\x1f\x7f]/;

/** Operations can share a list of parameters by reference, so each of them must be short. */
const MAX_PARAMETERS = 500;

/** Parameters of the operation override those of the path (OpenAPI 3, operation object). */
export function declaredParameters(document: OpenApiDocument, ofPath: unknown, own: unknown): Json[] {
  const found = new Map<string, Json>();
  for (const list of [ofPath, own]) {
    if (!Array.isArray(list)) continue;
    if (list.length > MAX_PARAMETERS) throw new Error(`it has more than ${MAX_PARAMETERS} parameters`);
    for (const one of list) {
      const parameter = resolved(document, one);
      found.set(`${parameter.in} ${parameter.name}`, parameter);
    }
  }
  const folded = new Set<string>();
  for (const { in: place, name } of found.values()) {
    const key = `${place} ${sharedName(place, String(name))}`;
    if (folded.has(key)) throw new Error(`several parameters have the name ${String(name).slice(0, 100)}`);
    folded.add(key);
  }
  return [...found.values()];
}

/** Returns what the names of a place have in common that servers may treat as equal. */
function sharedName(place: unknown, name: string): string {
  if (place === "path") return name;
  return place === "header" ? foldHeaderName(name) : foldedName(name);
}

/**
 * Servers may treat names as equal that differ in case, in compatible characters, or in characters that variables cannot
 * contain.
 */
export function foldedName(name: string): string {
  return name.normalize("NFKC").toUpperCase().toLowerCase().replace(/[.\s]/g, "_");
}

/** Returns undefined if the parameter is not offered as an argument. */
export function readParameter(
  document: OpenApiDocument,
  declared: Json,
  reserved: readonly ReservedName[],
  schemas: ToolSchemas,
): { readonly parameter: Omit<Parameter, "argument">; readonly schema: unknown } | undefined {
  const { name, in: place } = declared;
  if (typeof name !== "string" || name === "") throw new Error("a parameter has no name");
  if (place !== "path" && place !== "query" && place !== "header" && place !== "cookie")
    throw new Error(`the parameter ${name} is in ${String(place)}`);
  if (!name.isWellFormed() || isReserved(place, name, reserved)) return undefined;
  const content = isObject(declared.content) ? Object.entries(declared.content)[0] : undefined;
  const isText = content?.[0].startsWith("text/") === true;
  const schema = declared.schema ?? (isObject(content?.[1]) ? content[1].schema : undefined) ?? {};
  const isRequired = place === "path" || declared.required === true;
  const encoding = encodingOf(declared, place === "query" || place === "cookie" ? "form" : "simple");
  const { shape, isNarrower } =
    content === undefined || isText
      ? readShape(document, schema, {
          prefers: encoding.style === "deepObject" ? ["map", "list", "scalar"] : ["list", "scalar", "map"],
          spreads: encoding.explode && encoding.style === "form",
          count: (chars) => schemas.count(chars),
        })
      : { shape: { kind: "json", isAny: true } as const, isNarrower: false };
  const problem = encodingProblem(place, encoding, shape);
  if (problem !== undefined) {
    if (isRequired) throw new Error(`the parameter ${name.slice(0, 100)} ${problem}`);
    return undefined;
  }
  return {
    parameter: { ...encoding, name, in: place, isRequired, shape } as Omit<Parameter, "argument">,
    schema: isNarrower ? narrowedSchema(document, schema, shape) : schema,
  };
}

function encodingOf(declared: Json, byDefault: "form" | "simple") {
  const style = typeof declared.style === "string" ? declared.style : byDefault;
  return {
    style,
    explode: typeof declared.explode === "boolean" ? declared.explode : style === "form",
    allowReserved: declared.allowReserved === true,
  };
}

function encodingProblem(
  place: Place,
  { style, explode }: { readonly style: string; readonly explode: boolean },
  { kind }: ValueShape,
): string | undefined {
  if (!STYLES[place].some((known) => known === style)) return `has the style ${style.slice(0, 100)}`;
  // A cookie has one value without commas and quotes.
  if (place === "cookie" && kind !== "scalar") return "is a cookie with more than one value";
  if (kind === "map" && (style === "label" || style === "matrix")) return `is an object in the style ${style}`;
  if (kind === "map" && explode && (style === "spaceDelimited" || style === "pipeDelimited"))
    return `is an object in the style ${style} with explode`;
  return undefined;
}

function isReserved(place: Place, name: string, reserved: readonly ReservedName[]): boolean {
  if (place === "header" && (includesHeader(IGNORED_HEADERS, name) || IGNORED_PREFIXES.test(name) || !TOKEN.test(name)))
    return true;
  if (place === "cookie" && !COOKIE_NAME.test(name)) return true;
  return reserved.some(
    (one) =>
      one.in === place &&
      (one.name === undefined ||
        (place === "header" ? isSameHeader(one.name, name) : foldedName(one.name) === foldedName(name))),
  );
}

export interface ReadBody {
  readonly read: RequestBody;
  readonly schema: unknown;
  readonly description: unknown;
}

export function readRequestBody(
  document: OpenApiDocument,
  declared: unknown,
  schemas: ToolSchemas,
): ReadBody | undefined {
  if (declared === undefined) return undefined;
  const body = resolved(document, declared);
  const content = isObject(body.content) ? body.content : {};
  const known = Object.entries(content).flatMap(([type, media]) => {
    const kind = bodyKind(type.toLowerCase());
    return kind === undefined ? [] : [{ type: type.split(";", 1)[0] ?? type, kind, media }];
  });
  const best = known.sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind))[0];
  if (!best) throw new Error(`its body is ${Object.keys(content)[0]?.slice(0, 100) ?? "of no type"}`);
  const { kind, media } = best;
  const type = best.type.includes("*") ? "application/json" : best.type;
  if (!/^[\w.+-]+\/[\w.+-]+$/.test(type)) throw new Error(`its body is ${type.slice(0, 100)}`);
  const schema = (isObject(media) ? media.schema : undefined) ?? {};
  const { description } = body;
  const isRequired = body.required === true;
  if (kind === "json") return { read: { kind, type, isRequired }, schema, description };
  if (kind === "text")
    return {
      read: { kind, type, isRequired },
      schema: narrowedSchema(document, schema, { kind: "scalar", types: ["string"] }),
      description,
    };
  const fields = formFields(document, schema, isObject(media) ? media.encoding : undefined, schemas);
  return { read: { kind, type, isRequired, ...fields }, schema, description };
}

const KINDS: readonly RequestBody["kind"][] = ["json", "form", "multipart", "text"];

function bodyKind(type: string): RequestBody["kind"] | undefined {
  if (/^application\/(?:json|[\w.+-]+\+json)\b|^\*\/\*/.test(type)) return "json";
  if (type.startsWith("application/x-www-form-urlencoded")) return "form";
  if (type.startsWith("multipart/form-data")) return "multipart";
  return type.startsWith("text/") ? "text" : undefined;
}

const MAX_COMBINED_SCHEMAS = 100;

/** Fields with objects are sent as JSON, unless the description declares a style for them. */
function formFields(document: OpenApiDocument, schema: unknown, encodings: unknown, schemas: ToolSchemas) {
  const fields: Record<string, Encoding> = Object.create(null);
  let isOpen = true;
  const pending = [schema];
  for (let i = 0; i < pending.length; i++) {
    if (i >= MAX_COMBINED_SCHEMAS) throw new Error(`its form combines more than ${MAX_COMBINED_SCHEMAS} schemas`);
    const own = resolved(document, pending[i]);
    for (const list of [own.allOf, own.anyOf, own.oneOf])
      if (Array.isArray(list)) pending.push(...list.slice(0, MAX_COMBINED_SCHEMAS + 1));
    if (own.additionalProperties === false) isOpen = false;
    if (!isObject(own.properties)) continue;
    for (const [name, property] of Object.entries(own.properties)) {
      const declared = isObject(encodings) && Object.hasOwn(encodings, name) ? encodings[name] : undefined;
      const styles = isObject(declared) ? declared : {};
      const encoding = encodingOf(styles, "form");
      const hasStyle = styles.style !== undefined || styles.explode !== undefined;
      const isJson = !hasStyle && /\bjson\b/i.test(typeof styles.contentType === "string" ? styles.contentType : "");
      const { shape } = isJson
        ? { shape: { kind: "json", isAny: true } as const }
        : readShape(document, property, {
            prefers: encoding.style === "deepObject" ? ["map", "list", "scalar"] : ["list", "scalar", "map"],
            spreads: hasStyle && encoding.explode,
            isForm: !hasStyle,
            count: (chars) => schemas.count(chars),
          });
      if (UNQUOTABLE.test(name) || !name.isWellFormed() || encodingProblem("query", encoding, shape) !== undefined)
        continue;
      fields[name] = { ...encoding, name, shape } as Encoding;
    }
  }
  return { fields, isOpen };
}
