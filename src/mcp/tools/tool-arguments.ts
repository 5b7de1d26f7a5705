/**
 * Arguments that the configuration fills: defaults that clients see and may set, and values that they neither see nor
 * set, from the configuration or from what is known of the caller. A client's own value for a hidden argument is
 * dropped; the same argument in another case is an error, because the server may ignore case; a value that cannot be found
 * denies the call.
 */

import { foldCase } from "../../base/fold-case.ts";
import type { AttributeSource, Expression } from "../../cel/expression.ts";
import { elements, find, insertMembers, member, type Span, slice } from "../../json/json-text.ts";
import { withMembers } from "../../json/text-members.ts";
import { editedRequest } from "../protocol/edited-request.ts";
import type { ClientRequest } from "../protocol/json-rpc.ts";
import type { ArgumentOverride } from "../server-side/tool-settings.ts";

export interface CompiledArgument {
  readonly name: string;
  readonly isHidden: boolean;
  /** Text of JSON. */
  readonly fixed: string | undefined;
  readonly default: string | undefined;
  readonly expression: Expression | undefined;
  readonly description: string | undefined;
}

export function compileArgument(
  name: string,
  config: ArgumentOverride,
  cel: (source: string) => Expression,
): CompiledArgument {
  const isFixed = config.value !== undefined || config.expression !== undefined;
  return {
    name,
    isHidden: config.hidden ?? isFixed,
    fixed: config.value === undefined ? undefined : JSON.stringify(config.value),
    default: config.default === undefined ? undefined : JSON.stringify(config.default),
    expression: config.expression === undefined ? undefined : cel(config.expression),
    description: config.description,
  };
}

export type FilledRequest =
  | { readonly request: ClientRequest; readonly problem?: undefined; readonly misspelled?: undefined }
  /** A value that the caller's login must provide is missing. */
  | { readonly problem: string; readonly misspelled?: undefined }
  /** An argument of the configuration is there under another spelling, which the server may take for it. */
  | { readonly misspelled: string; readonly problem?: undefined };

/** The request with the arguments that the server shall get. */
export function filledRequest(
  request: ClientRequest,
  args: readonly CompiledArgument[],
  caller: AttributeSource | undefined,
): FilledRequest {
  const sent = request.params.arguments;
  const isObject = typeof sent === "object" && sent !== null && !Array.isArray(sent);
  const misspelled = isObject ? spellingProblem(Object.keys(sent), args) : undefined;
  if (misspelled !== undefined) return { misspelled };
  const changes = new Map<string, string | undefined>();
  for (const one of args) {
    const value = filling(one, caller);
    if (value.problem !== undefined) return { problem: `the argument "${one.name}": ${value.problem}` };
    if (one.isHidden) changes.set(one.name, value.json);
    else if (value.json !== undefined && !(isObject && Object.hasOwn(sent, one.name)))
      changes.set(one.name, value.json);
  }
  if (changes.size === 0) return { request };
  const params = find(request.text, 0, "params");
  if (!params) return { request };
  const span = member(request.text, params.start, "arguments");
  const text = withMembers(request.text, isObject ? span : undefined, changes);
  const edit = span
    ? { start: span.start, end: span.end, text }
    : insertMembers(request.text, params.start, `"arguments":${text}`);
  const meant = { ...request.params, arguments: JSON.parse(text) as unknown };
  return { request: editedRequest(request, [edit], meant) };
}

function spellingProblem(keys: readonly string[], args: readonly CompiledArgument[]): string | undefined {
  if (args.length === 0) return undefined;
  for (const key of keys) {
    const folded = foldCase(key);
    for (const { name, isHidden } of args) {
      if (key === name || foldCase(name) !== folded) continue;
      // A hidden argument stays unknown to clients.
      return `the argument ${JSON.stringify(key)} is not known${isHidden ? "" : `; it is written ${JSON.stringify(name)}`}`;
    }
  }
  return undefined;
}

/** A tool's input schema as clients shall see it. */
export function shownSchema(text: string, schema: Span, args: readonly CompiledArgument[]): string {
  const properties = member(text, schema.start, "properties");
  const changes = new Map<string, string | undefined>();
  for (const one of args) {
    const property = properties && member(text, properties.start, one.name);
    if (one.isHidden) changes.set(one.name, undefined);
    else if (property) changes.set(one.name, shownProperty(text, property, one));
  }
  const required = member(text, schema.start, "required");
  const changed = new Map<string, string | undefined>();
  if (properties) changed.set("properties", withMembers(text, properties, changes));
  if (required) changed.set("required", stillRequired(text, required, args));
  return withMembers(text, schema, changed);
}

function shownProperty(text: string, property: Span, one: CompiledArgument): string {
  const changes: [string, string][] = [];
  if (one.description !== undefined) changes.push(["description", JSON.stringify(one.description)]);
  if (one.default !== undefined) changes.push(["default", one.default]);
  // A schema may be `true`: then there is nothing to say it in.
  return text[property.start] === "{" ? withMembers(text, property, new Map(changes)) : slice(text, property);
}

/** What the gateway fills need not be sent. */
function stillRequired(text: string, required: Span, args: readonly CompiledArgument[]): string {
  const filled = new Set(args.filter((one) => one.isHidden || one.default !== undefined).map(({ name }) => name));
  const kept = elements(text, required.start).filter((item) => !filled.has(String(JSON.parse(slice(text, item)))));
  return `[${kept.map((item) => slice(text, item)).join(",")}]`;
}

function filling(
  one: CompiledArgument,
  caller: AttributeSource | undefined,
): { readonly json: string | undefined; readonly problem?: undefined } | { readonly problem: string } {
  if (one.expression === undefined) return { json: one.fixed ?? one.default };
  if (caller === undefined) return { problem: "nothing is known of the caller" };
  const result = one.expression.evaluate(caller);
  if (!result.ok) return { problem: result.error };
  // A claim that is null says as little as one that is absent.
  return result.value === null ? { problem: "its value is null" } : { json: JSON.stringify(result.value) };
}
