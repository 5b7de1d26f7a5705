/**
 * Builds the HTTP request of a tool call. This is the only place that writes query strings, headers, cookies, and forms:
 * each name belongs to the gateway or to one argument, and an argument cannot write a name of another owner. Values have
 * their declared types and are sent so that servers can read only these values from them.
 */

import { randomUUID } from "node:crypto";
import { peerInput } from "../../base/peer-inputs.ts";
import { HeaderList, isHeaderValue } from "../../http/headers.ts";
import { canonicalPath, pathFault, pathSegment } from "../../http/request-path.ts";
import { readJson } from "../../json/read-json.ts";
import { checkDeclaredTypes } from "./declared-types.ts";
import { isObject, type Json } from "./document.ts";
import { type Operation, placeholders } from "./operations.ts";
import { type Encoding, foldedName, type Parameter, type RequestBody } from "./parameters.ts";
import { ArgumentProblem, FREE_NAME, jsonText, listItems, mapTexts, scalarText, wrongType } from "./value-shape.ts";

const OWN_MESSAGE = peerInput("gateway/mcp-message");

export interface ApiRequest {
  readonly method: string;
  /** The path and the query, relative to the path of the base URL. */
  readonly path: string;
  readonly headers: HeaderList;
  readonly body: Buffer | undefined;
}

/** Alternating names and values that the gateway itself sends. */
export interface GatewayPairs {
  readonly headers: readonly string[];
  readonly query: readonly string[];
}

export interface ToolArguments {
  readonly values: Json;
  /** The argument `body` exactly as the client wrote it. */
  readonly bodyText: string | undefined;
}

const NO_PAIRS: GatewayPairs = { headers: [], query: [] };

/** Throws `ArgumentProblem` if an argument cannot be sent as declared. */
export function apiRequest(
  operation: Operation,
  { values, bodyText }: ToolArguments,
  gateway: GatewayPairs = NO_PAIRS,
): ApiRequest {
  const { parameters } = operation;
  for (const name of Object.keys(values))
    if (!(name === "body" && operation.body) && !parameters.some(({ argument }) => argument === name))
      throw new ArgumentProblem(`unknown argument "${name.slice(0, 100)}"`);
  // Everything else is checked when it is encoded.
  if (sendsJson(operation))
    checkDeclaredTypes((readJson(OWN_MESSAGE, operation.text) as Json).inputSchema as Json, values);
  const query = new OwnedPairs(parameters.filter((one) => one.in === "query"));
  const headers = new HeaderList(["accept", "application/json, text/*;q=0.9, */*;q=0.5"]);
  const cookies: string[] = [];
  const segments = new Map<string, string>();
  for (const parameter of parameters) {
    const where = `the argument "${parameter.argument}"`;
    const value = Object.hasOwn(values, parameter.argument) ? values[parameter.argument] : undefined;
    if (value === undefined) {
      if (parameter.isRequired) throw new ArgumentProblem(`${where} is required`);
    } else if (parameter.in === "path") segments.set(parameter.name, pathText(parameter, value, where));
    else if (parameter.in === "query") writePairs(query, parameter, value, where);
    else if (parameter.in === "cookie") cookies.push(`${parameter.name}=${cookieText(parameter, value, where)}`);
    else headers.set(parameter.name.toLowerCase(), headerText(parameter, value, where));
  }
  if (cookies.length > 0) headers.set("cookie", cookies.join("; "));
  const body = operation.body && encodeBody(operation.body, values.body, bodyText);
  if (body) headers.set("content-type", body.type);
  for (let i = 0; i + 1 < gateway.headers.length; i += 2)
    headers.set((gateway.headers[i] as string).toLowerCase(), gateway.headers[i + 1] as string);
  const path = buildPath(operation.path, segments);
  const text = query.text(gateway.query, queryPair);
  return { method: operation.method, path: text === "" ? path : `${path}?${text}`, headers, body: body?.bytes };
}

function sendsJson({ parameters, body }: Operation): boolean {
  const fields = body === undefined ? [] : "fields" in body ? Object.values(body.fields) : [];
  return body?.kind === "json" || [...parameters, ...fields].some(({ shape }) => shape.kind === "json");
}

interface Pair {
  readonly name: string;
  readonly value: string;
  readonly owner: Encoding | undefined;
}

/** Collects names and values. Throws `ArgumentProblem` for a name that belongs to another owner. */
class OwnedPairs {
  readonly pairs: Pair[] = [];
  readonly #owners = new Map<string, Encoding>();
  /** The parts of names before `[`, which some servers read as names. Null if several owners share one. */
  readonly #roots = new Map<string, Encoding | null>();

  constructor(declared: Iterable<Encoding>) {
    for (const one of declared) {
      this.#owners.set(foldedName(one.name), one);
      const root = rootName(one.name);
      this.#roots.set(root, this.#roots.has(root) ? null : one);
    }
  }

  /** `owner` is undefined for a form field that is not declared. */
  put(owner: Encoding | undefined, name: string, value: string): void {
    const known = this.#owners.get(foldedName(name));
    const root = this.#roots.get(rootName(name));
    if (known === undefined ? root !== undefined && root !== owner : known !== owner)
      throw new ArgumentProblem(`the name "${name.slice(0, 100)}" belongs to another argument`);
    this.pairs.push({ name, value, owner });
  }

  text(gateway: readonly string[], write: (pair: Pair) => string): string {
    const written = this.pairs.map(write);
    for (let i = 0; i + 1 < gateway.length; i += 2) {
      const name = gateway[i] as string;
      if (this.pairs.some((pair) => rootName(pair.name) === rootName(name)))
        throw new ArgumentProblem(`the name "${name.slice(0, 100)}" cannot be set`);
      written.push(`${encoded(name)}=${encoded(gateway[i + 1] as string)}`);
    }
    return written.join("&");
  }
}

function rootName(name: string): string {
  return foldedName(name.split("[", 1)[0] as string);
}

function writePairs(pairs: OwnedPairs, encoding: Encoding, value: unknown, where: string): void {
  const { name, style, explode, shape } = encoding;
  if (shape.kind === "json") pairs.put(encoding, name, jsonValue(shape.isAny, value, where));
  else if (shape.kind === "scalar") pairs.put(encoding, name, scalarText(shape.types, value, where));
  else if (shape.kind === "list") {
    const { items } = shape;
    const texts = listItems(value, where).map((item, i) =>
      items === "objects"
        ? jsonValue(false, item, `item ${i} of ${where}`)
        : scalarText(items, item, `item ${i} of ${where}`),
    );
    if (explode || style === "deepObject") for (const text of texts) pairs.put(encoding, name, text);
    else pairs.put(encoding, name, joined(texts, SEPARATORS[style] ?? ",", where));
  } else {
    const members = mapTexts(shape, value, where);
    if (style === "deepObject") for (const [key, text] of members) pairs.put(encoding, deepName(name, key), text);
    else if (explode) for (const [key, text] of members) pairs.put(encoding, key, text);
    else pairs.put(encoding, name, joined(members.flat(), SEPARATORS[style] ?? ",", where));
  }
}

const SEPARATORS: Readonly<Record<string, string>> = { spaceDelimited: " ", pipeDelimited: "|" };

function deepName(name: string, key: string): string {
  if (/[[\]]/.test(key)) throw new ArgumentProblem(`the name "${key.slice(0, 100)}" must not contain brackets`);
  return `${name}[${key}]`;
}

/** A separator inside of a part, or an empty part, would change the number of parts that the server reads. */
function joined(parts: readonly string[], separator: string, where: string): string {
  for (const part of parts)
    if (part === "" || part.includes(separator) || part.trim() !== part)
      throw new ArgumentProblem(
        `${where} has a part that is empty, or that contains or borders on "${separator}" or white space, which separate parts`,
      );
  return parts.join(separator);
}

function jsonValue(isAny: boolean, value: unknown, where: string): string {
  if (!isAny && !isObject(value)) throw wrongType(where, "object", value);
  return jsonText(value, where);
}

/** Implements the style `simple`, which separates parts with commas. */
function simpleText({ shape, explode }: Encoding, value: unknown, where: string): string {
  if (shape.kind === "json") return jsonValue(shape.isAny, value, where);
  if (shape.kind === "scalar") return scalarText(shape.types, value, where);
  if (shape.kind === "list") return joined(listTexts(shape.items, value, where), ",", where);
  const members = mapTexts(shape, value, where);
  if (!explode) return joined(members.flat(), ",", where);
  const parts = members.map(([key, text]) => `${joined([key], "=", where)}=${joined([text], "=", where)}`);
  return joined(parts, ",", where);
}

function listTexts(items: Extract<Encoding["shape"], { kind: "list" }>["items"], value: unknown, where: string) {
  return listItems(value, where).map((item, i) =>
    scalarText(items === "objects" ? [] : items, item, `item ${i} of ${where}`),
  );
}

function pathText(parameter: Parameter, value: unknown, where: string): string {
  const { name, style, explode, shape } = parameter;
  const segment = (text: string): string => {
    const written = pathSegment(text);
    if (written === undefined)
      throw new ArgumentProblem(`${where} cannot stand in a path: it must be one segment without / and \\`);
    return written;
  };
  if (style !== "label" && style !== "matrix") {
    if (shape.kind === "list" || shape.kind === "map")
      return segment(simpleText(parameter, value, where)).replace(/%(?:2C|3D)/g, decodeURIComponent);
    return segment(simpleText(parameter, value, where));
  }
  const texts = shape.kind === "list" ? listTexts(shape.items, value, where) : [simpleText(parameter, value, where)];
  for (const text of texts) joined([text], style === "label" ? "." : ";", where);
  if (style === "label") {
    const separator = explode ? "." : ",";
    joined(texts, separator, where);
    return `.${texts.map(segment).join(separator)}`;
  }
  if (explode) return texts.map((text) => `;${encoded(name)}=${segment(text)}`).join("");
  if (shape.kind === "list") joined(texts, ",", where);
  return `;${encoded(name)}=${texts.map(segment).join(",")}`;
}

/** Servers trim header values and disagree on the charset of other characters than ASCII. */
function headerText(parameter: Parameter, value: unknown, where: string): string {
  const text = simpleText(parameter, value, where);
  if (!isHeaderValue(text) || !/^[\t\x20-\x7e]*$/.test(text) || text.trim() !== text)
    throw new ArgumentProblem(
      `${where} cannot stand in a header: it must be one line of ASCII text without white space around it`,
    );
  return text;
}

/** Servers disagree on whether the value of a cookie is encoded, so only values without encoding are sent. */
function cookieText({ shape }: Parameter, value: unknown, where: string): string {
  const text = shape.kind === "scalar" ? scalarText(shape.types, value, where) : "";
  if (!/^[!#$&-+\--:<-[\]-~]+$/.test(text))
    throw new ArgumentProblem(`${where} cannot stand in a cookie: it contains characters that cookies cannot carry`);
  return text;
}

function buildPath(template: string, values: ReadonlyMap<string, string>): string {
  let path = "";
  let at = 0;
  for (const [placeholder, name] of placeholders(template)) {
    const next = template.indexOf(placeholder, at);
    path += template.slice(at, next) + (values.get(name) ?? "");
    at = next + placeholder.length;
  }
  path += template.slice(at);
  // The whole path is checked again, because a value may combine with the template (`/.{x}`).
  const fault = pathFault(path);
  if (fault !== undefined) throw new ArgumentProblem(`the arguments would make ${fault}`);
  return canonicalPath(path);
}

function queryPair({ name, value, owner }: Pair): string {
  const text = encoded(value);
  const key = encoded(name);
  // With `allowReserved`, only characters that cannot end a value are sent without encoding.
  if (owner?.allowReserved === true) return `${key}=${text.replace(/%(?:3A|2F|3F|40|24|2C)/g, decodeURIComponent)}`;
  const isJoined = owner?.explode === false && (owner.shape.kind === "list" || owner.shape.kind === "map");
  return `${key}=${isJoined && owner.style === "form" ? text.replaceAll("%2C", ",") : text}`;
}

function encoded(text: string): string {
  try {
    return encodeURIComponent(text);
  } catch {
    throw new ArgumentProblem("an argument is not valid Unicode");
  }
}

function encodeBody(body: RequestBody, value: unknown, text: string | undefined) {
  if (value === undefined || text === undefined) {
    if (body.isRequired) throw new ArgumentProblem('the argument "body" is required');
    return undefined;
  }
  if (body.kind === "json") return { type: body.type, bytes: Buffer.from(text) };
  const where = 'the argument "body"';
  if (!("fields" in body))
    return { type: `${body.type}; charset=utf-8`, bytes: Buffer.from(scalarText(["string"], value, where)) };
  if (!isObject(value)) throw wrongType(where, "object", value);
  const pairs = new OwnedPairs(Object.values(body.fields));
  const free = new Set<string>();
  for (const [name, one] of Object.entries(value)) {
    const place = `the field "${name.slice(0, 100)}"`;
    const field = Object.hasOwn(body.fields, name) ? body.fields[name] : undefined;
    if (field) writePairs(pairs, field, one, place);
    else if (!body.isOpen || !FREE_NAME.test(name) || free.has(foldedName(name)))
      throw new ArgumentProblem(`${place} is not known`);
    else pairs.put(undefined, name, scalarText(["string"], one, place));
    if (!field) free.add(foldedName(name));
  }
  if (body.kind === "multipart") return multipart(pairs.pairs);
  const form = pairs.text([], (pair) => `${encoded(pair.name)}=${encoded(pair.value)}`);
  return { type: body.type, bytes: Buffer.from(form) };
}

/** `FormData` is not used, because it changes the line breaks of values. */
function multipart(pairs: readonly Pair[]) {
  // No value can contain a boundary that did not exist when the value was sent.
  const boundary = `form-${randomUUID()}`;
  const parts = pairs.map(({ name, value, owner }) => {
    const isJson = owner?.shape.kind === "json" || (owner?.shape.kind === "list" && owner.shape.items === "objects");
    const type = isJson ? "\r\ncontent-type: application/json" : "";
    return `--${boundary}\r\ncontent-disposition: form-data; name="${name}"${type}\r\n\r\n${value}\r\n`;
  });
  return {
    type: `multipart/form-data; boundary=${boundary}`,
    bytes: Buffer.from(`${parts.join("")}--${boundary}--\r\n`),
  };
}
