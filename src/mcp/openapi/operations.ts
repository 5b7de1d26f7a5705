/**
 * Converts the operations of an OpenAPI description into tools. Unsupported operations are skipped with a reason.
 */
import { includesHeader, isSameHeader, MESSAGE_HEADERS } from "../../http/header-rules.ts";
import { pathFault } from "../../http/request-path.ts";
import { putMember } from "../../json/json.ts";
import { isObject, type Json, type OpenApiDocument, pointedTo, resolved } from "./document.ts";

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch"] as const;
const MAX_OPERATIONS = 5_000;
const MAX_DESCRIPTION_CHARS = 2_000;
const MAX_OPERATION_NAME_CHARS = 64;
/** Selections match paths with regular expressions, so the paths must be short. */
const MAX_PATH_CHARS = 2_048;
/** Operations can share a list of parameters by reference, so each of them must be short. */
const MAX_PARAMETERS = 500;

export interface Parameter {
  /** The name of the tool's argument, with a suffix if another argument has the same name. */
  readonly argument: string;
  readonly name: string;
  readonly in: "path" | "query" | "header" | "cookie";
  readonly isRequired: boolean;
  readonly style: string;
  readonly explode: boolean;
  readonly isJson: boolean;
}

export type BodyKind = "json" | "form" | "multipart" | "text";

export interface Operation {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: { readonly kind: BodyKind; readonly type: string; readonly isRequired: boolean } | undefined;
  readonly text: string;
}

export interface Selection {
  /** Arguments cannot set these headers and query parameters, because the gateway sets them. */
  readonly reserved: readonly { readonly in: "header" | "query"; readonly name: string }[];
  readonly include?: readonly string[] | undefined;
  readonly exclude?: readonly string[] | undefined;
}

export interface Operations {
  readonly byName: ReadonlyMap<string, Operation>;
  readonly left: readonly { readonly operation: string; readonly reason: string }[];
}

/** Yields between operations, so that the caller can work in slices. */
export function* convertOperations(document: OpenApiDocument, selection: Selection): Generator<undefined, Operations> {
  const byName = new Map<string, Operation>();
  const names = new UniqueNames(MAX_OPERATION_NAME_CHARS - 5);
  const left: { operation: string; reason: string }[] = [];
  const isChosen = compileSelection(selection);
  const budget: SchemaBudget = { leftChars: MAX_TOTAL_SCHEMA_CHARS };
  for (const [path, value] of Object.entries(document.root.paths as Json)) {
    if (!path.startsWith("/")) continue;
    let item: Json;
    try {
      if (path.length > MAX_PATH_CHARS) throw new Error(`the path is longer than ${MAX_PATH_CHARS} characters`);
      item = resolved(document, value);
    } catch (error) {
      left.push({ operation: path.slice(0, MAX_PATH_CHARS), reason: errorMessage(error) });
      continue;
    }
    for (const method of METHODS) {
      const operation = item[method];
      if (!isObject(operation)) continue;
      const base = operationName(operation, method, path);
      if (!isChosen(base, method, path, operation)) continue;
      if (byName.size >= MAX_OPERATIONS) {
        left.push({ operation: `${method.toUpperCase()} ${path}`, reason: `more than ${MAX_OPERATIONS} operations` });
        continue;
      }
      try {
        const name = names.next(base);
        byName.set(name, createTool(document, name, method, path, item, operation, selection.reserved, budget));
      } catch (error) {
        left.push({ operation: `${method.toUpperCase()} ${path}`, reason: errorMessage(error) });
      }
      yield;
    }
  }
  return { byName, left };
}

function createTool(
  document: OpenApiDocument,
  name: string,
  method: string,
  path: string,
  item: Json,
  operation: Json,
  reserved: Selection["reserved"],
  budget: SchemaBudget,
): Operation {
  let schemas = new ToolSchemas(document, budget);
  const declared = mergeParameters(document, item.parameters, operation.parameters);
  const body = readRequestBody(document, operation.requestBody);
  const arguments_ = new Map<string, unknown>();
  const required: string[] = [];
  const parameters: Parameter[] = [];
  for (const one of declared) {
    const parameter = createParameter(one, arguments_, body !== undefined);
    if (parameter === undefined || isReserved(parameter, reserved)) continue;
    const content = isObject(one.content) ? Object.values(one.content)[0] : undefined;
    const schema = one.schema ?? (isObject(content) ? content.schema : undefined) ?? {};
    arguments_.set(parameter.argument, described(schemas.converted(schema), one.description));
    if (parameter.isRequired) required.push(parameter.argument);
    parameters.push(parameter);
  }
  // A value must not complete a percent-encoding that starts in the template.
  const fault = pathFault(path.replace(/\{[^{}/]+\}/g, "-"));
  if (fault !== undefined) throw new Error(`no server would accept ${fault}`);
  for (const [placeholder, found] of placeholders(path))
    if (!parameters.some((one) => one.in === "path" && one.name === found))
      throw new Error(`${placeholder} is not a declared parameter`);
  if (body) {
    let schema: unknown;
    try {
      schema = schemas.converted(body.schema ?? {});
    } catch (error) {
      if (!(error instanceof SchemaTooLarge)) throw error;
      schemas = new ToolSchemas(document, budget);
      schema = { type: "object", description: "The schema is too large to be shown: see the API's documentation." };
    }
    arguments_.set("body", described(schema, body.description));
    if (body.isRequired) required.push("body");
  }
  const { definitions } = schemas;
  const tool = {
    name,
    ...(typeof operation.summary === "string" ? { title: operation.summary.slice(0, 200) } : {}),
    description: toolDescription(operation, method, path),
    inputSchema: {
      type: "object",
      properties: Object.fromEntries(arguments_),
      ...(required.length === 0 ? {} : { required }),
      additionalProperties: false,
      ...(Object.keys(definitions).length === 0 ? {} : { $defs: definitions }),
    },
    annotations: {
      readOnlyHint: method === "get" || method === "head" || method === "options",
      destructiveHint: method === "delete",
      idempotentHint: method !== "post" && method !== "patch",
      openWorldHint: true,
    },
  };
  return {
    name,
    method: method.toUpperCase(),
    path,
    parameters,
    body: body && { kind: body.kind, type: body.type, isRequired: body.isRequired },
    text: JSON.stringify(tool),
  };
}

/** Parameters of the operation override those of the path (OpenAPI 3, operation object). */
function mergeParameters(document: OpenApiDocument, ofPath: unknown, own: unknown): Json[] {
  const found = new Map<string, Json>();
  for (const list of [ofPath, own]) {
    if (!Array.isArray(list)) continue;
    if (list.length > MAX_PARAMETERS) throw new Error(`it has more than ${MAX_PARAMETERS} parameters`);
    for (const one of list) {
      const parameter = resolved(document, one);
      found.set(`${parameter.in} ${parameter.name}`, parameter);
    }
  }
  return [...found.values()];
}

/**
 * Parameters with these header names are ignored. OpenAPI 3 requires this for `accept`, `content-type`, and
 * `authorization`.
 */
const IGNORED_HEADERS: ReadonlySet<string> = new Set([
  ...MESSAGE_HEADERS,
  ...["accept", "content-type", "authorization", "host", "expect", "cookie", "proxy-authorization"],
]);

function createParameter(one: Json, taken: ReadonlyMap<string, unknown>, hasBody: boolean): Parameter | undefined {
  const place = one.in;
  if (typeof one.name !== "string" || one.name === "") throw new Error("a parameter has no name");
  if (place !== "path" && place !== "query" && place !== "header" && place !== "cookie")
    throw new Error(`the parameter ${one.name} is in ${String(place)}`);
  if (place === "header" && (includesHeader(IGNORED_HEADERS, one.name) || !/^[\w!#$%&'*+.^`|~-]+$/.test(one.name)))
    return undefined;
  const isTaken = (name: string): boolean => taken.has(name) || (hasBody && name === "body");
  const style = typeof one.style === "string" ? one.style : place === "query" || place === "cookie" ? "form" : "simple";
  return {
    argument: isTaken(one.name) ? `${one.name}_${place}` : one.name,
    name: one.name,
    in: place,
    isRequired: place === "path" || one.required === true,
    style,
    explode: typeof one.explode === "boolean" ? one.explode : style === "form",
    isJson: isObject(one.content),
  };
}

function isReserved({ in: place, name }: Parameter, reserved: Selection["reserved"]): boolean {
  return reserved.some(
    (one) =>
      one.in === place &&
      (place === "header" ? isSameHeader(one.name, name) : one.name.toLowerCase() === name.toLowerCase()),
  );
}

function readRequestBody(document: OpenApiDocument, value: unknown) {
  if (value === undefined) return undefined;
  const body = resolved(document, value);
  const content = isObject(body.content) ? body.content : {};
  const known = Object.entries(content).flatMap(([type, media]) => {
    const kind = bodyKind(type.toLowerCase());
    return kind === undefined ? [] : [{ type: type.split(";", 1)[0] ?? type, kind, media }];
  });
  const best = known.sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind))[0];
  if (!best) throw new Error(`its body is ${Object.keys(content)[0] ?? "of no type"}`);
  return {
    kind: best.kind,
    type: best.type.includes("*") ? "application/json" : best.type,
    isRequired: body.required === true,
    schema: isObject(best.media) ? best.media.schema : undefined,
    description: body.description,
  };
}

const KINDS: readonly BodyKind[] = ["json", "form", "multipart", "text"];

function bodyKind(type: string): BodyKind | undefined {
  if (/^application\/(?:json|[\w.+-]+\+json)\b|^\*\/\*/.test(type)) return "json";
  if (type.startsWith("application/x-www-form-urlencoded")) return "form";
  if (type.startsWith("multipart/form-data")) return "multipart";
  return type.startsWith("text/") ? "text" : undefined;
}

function operationName(operation: Json, method: string, path: string): string {
  const given = typeof operation.operationId === "string" ? operation.operationId : "";
  const base = given === "" ? `${method}_${path.replace(/[{}]/g, "").replace(/^\/|\/$/g, "")}` : given;
  // The name is cut before it is trimmed, because trimming takes quadratic time.
  const name = base
    .slice(0, 4 * MAX_OPERATION_NAME_CHARS)
    .replace(/[^A-Za-z0-9_-]+/g, "_")
    .replace(/^_+|_+$/g, "");
  return (name === "" ? method : name).slice(0, MAX_OPERATION_NAME_CHARS);
}

function toolDescription(operation: Json, method: string, path: string): string {
  const texts = [operation.summary, operation.description].filter(
    (one) => typeof one === "string" && one.trim() !== "",
  );
  const text = [...new Set(texts)].join("\n\n") || `${method.toUpperCase()} ${path}`;
  const cut = text.length > MAX_DESCRIPTION_CHARS ? `${text.slice(0, MAX_DESCRIPTION_CHARS)}…` : text;
  return operation.deprecated === true ? `Deprecated. ${cut}` : cut;
}

function described(schema: unknown, description: unknown): unknown {
  if (typeof description !== "string" || description === "" || !isObject(schema)) return schema;
  return schema.description === undefined
    ? { ...schema, description: description.slice(0, MAX_DESCRIPTION_CHARS) }
    : schema;
}

/** Makes names unique with a number. Each number is tried once, so that many equal names take linear time. */
class UniqueNames {
  readonly #maxBaseChars: number;
  readonly #taken = new Set<string>();
  readonly #nextNumber = new Map<string, number>();

  constructor(maxBaseChars = Number.POSITIVE_INFINITY) {
    this.#maxBaseChars = maxBaseChars;
  }

  next(base: string): string {
    const stem = base.slice(0, this.#maxBaseChars);
    let name = base;
    let number = this.#nextNumber.get(stem) ?? 2;
    while (this.#taken.has(name)) name = `${stem}_${number++}`;
    this.#nextNumber.set(stem, number);
    this.#taken.add(name);
    return name;
  }
}

/** Returns pairs such as `["{id}", "id"]`. */
export function placeholders(path: string): [string, string][] {
  return [...path.matchAll(/\{([^{}/]+)\}/g)].map(([whole, name]) => [whole, name as string]);
}

function compileSelection({ include, exclude }: Selection) {
  const included = include?.map(compilePattern);
  const excluded = (exclude ?? []).map(compilePattern);
  return (name: string, method: string, path: string, operation: Json): boolean => {
    const fits = (pattern: ReturnType<typeof compilePattern>): boolean =>
      pattern(name, `${method.toUpperCase()} ${path}`, operation);
    return (included === undefined || included.some(fits)) && !excluded.some(fits);
  };
}

/** Accepts `getPet*`, `GET /pets/*`, `* /pets`, and `tag:pets`. */
function compilePattern(text: string): (name: string, request: string, operation: Json) => boolean {
  if (text.startsWith("tag:")) {
    const tag = text.slice(4);
    return (_name, _request, { tags }) => Array.isArray(tags) && tags.includes(tag);
  }
  const expression = new RegExp(
    `^${text
      .split("*")
      .map((part) => part.replace(/[\\^$.|?+()[\]{}]/g, "\\$&"))
      .join(".*")}$`,
    "s",
  );
  const isRequest = text.includes(" /");
  return (name, request) => expression.test(isRequest ? request : name);
}

function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Limits the schemas of one tool, because longer ones would cost the model too many tokens. */
const MAX_SCHEMA_CHARS = 64 * 1024;
const MAX_SCHEMA_DEPTH = 64;
/** Limits the schemas of all tools together, because operations can share large schemas by reference. */
const MAX_TOTAL_SCHEMA_CHARS = 8 * 1024 * 1024;

interface SchemaBudget {
  leftChars: number;
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
    this.#count(VALUE_CHARS);
    if (Array.isArray(schema)) return schema.map((one) => this.converted(one, depth + 1));
    if (!isObject(schema)) {
      if (typeof schema === "string") this.#count(schema.length);
      return schema;
    }
    if (typeof schema.$ref === "string") {
      // Resolving a reference costs time, so all of it counts.
      this.#count(schema.$ref.length);
      const name = this.#defined(schema.$ref);
      this.#count(name.length);
      return { $ref: `#/$defs/${name}` };
    }
    const result: Record<string, unknown> = {};
    for (const [key, value] of Object.entries(schema)) {
      this.#count(key.length + VALUE_CHARS);
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
      this.#count(key.length + VALUE_CHARS);
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

  #count(chars: number): void {
    this.#chars += chars;
    this.#budget.leftChars -= chars;
    if (this.#budget.leftChars < 0) throw new Error("the schemas of all operations together are too large");
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
