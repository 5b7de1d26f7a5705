/**
 * Converts the operations of an OpenAPI description into tools. Unsupported operations are skipped with a reason.
 */

import { UniqueNames } from "../../base/unique-names.ts";
import { pathFault } from "../../http/request-path.ts";
import { isObject, type Json, type OpenApiDocument, resolved } from "./document.ts";
import {
  declaredParameters,
  type Parameter,
  type RequestBody,
  type ReservedName,
  readParameter,
  readRequestBody,
} from "./parameters.ts";
import { SchemaBudget, SchemaTooLarge, ToolSchemas } from "./tool-schemas.ts";

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch"] as const;
const MAX_OPERATIONS = 5_000;
const MAX_DESCRIPTION_CHARS = 2_000;
const MAX_OPERATION_NAME_CHARS = 64;
/** Selections match paths with regular expressions, so the paths must be short. */
const MAX_PATH_CHARS = 2_048;

export interface Operation {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: RequestBody | undefined;
  readonly text: string;
}

export interface Selection {
  /** Arguments cannot set these headers and query parameters, because the gateway sets them. */
  readonly reserved: readonly ReservedName[];
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
  const budget = new SchemaBudget();
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
  const body = readRequestBody(document, operation.requestBody, schemas);
  const arguments_ = new Map<string, unknown>();
  const required: string[] = [];
  const parameters: Parameter[] = [];
  const names = new UniqueNames();
  if (body) names.next("body");
  for (const one of declaredParameters(document, item.parameters, operation.parameters)) {
    const read = readParameter(document, one, reserved, schemas);
    if (read === undefined) continue;
    const { name, in: place } = read.parameter;
    const argument = names.has(name) ? names.next(`${name}_${place}`) : names.next(name);
    arguments_.set(argument, described(schemas.converted(read.schema), one.description));
    if (read.parameter.isRequired) required.push(argument);
    parameters.push({ ...read.parameter, argument });
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
      schema = schemas.converted(body.schema);
    } catch (error) {
      if (!(error instanceof SchemaTooLarge)) throw error;
      schemas = new ToolSchemas(document, budget);
      schema = { type: "object", description: "The schema is too large to be shown: see the API's documentation." };
    }
    arguments_.set("body", described(schema, body.description));
    if (body.read.isRequired) required.push("body");
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
    body: body?.read,
    text: JSON.stringify(tool),
  };
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
  const parts = text.split("*");
  const isRequest = text.includes(" /");
  return (name, request) => matchesParts(isRequest ? request : name, parts);
}

/** Anything may be between two parts. */
function matchesParts(text: string, parts: readonly string[]): boolean {
  const [first = "", ...others] = parts;
  const last = others.pop();
  if (last === undefined) return text === first;
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  for (const part of others) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return at <= text.length - last.length;
}

function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
