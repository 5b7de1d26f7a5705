/**
 * Builds the HTTP request of a tool call from its arguments. Arguments cannot change the host or add path segments.
 */

import { randomUUID } from "node:crypto";
import { ExpectedError } from "../../base/errors.ts";
import { HeaderList, isHeaderValue } from "../../http/headers.ts";
import { canonicalPath, pathFault, pathSegment } from "../../http/request-path.ts";
import { isObject, type Json } from "./document.ts";
import { type Operation, type Parameter, placeholders } from "./operations.ts";

export interface ApiRequest {
  readonly method: string;
  /** The path and the query, relative to the path of the base URL. */
  readonly path: string;
  readonly headers: HeaderList;
  readonly body: Buffer | undefined;
}

export class ArgumentProblem extends ExpectedError {}

/** `bodyText` is the argument `body` exactly as the client wrote it. */
export function apiRequest(operation: Operation, args: Json, bodyText: string | undefined): ApiRequest {
  for (const name of Object.keys(args))
    if (!(name === "body" && operation.body) && !operation.parameters.some(({ argument }) => argument === name))
      throw new ArgumentProblem(`unknown argument "${name.slice(0, 100)}"`);
  const headers = new HeaderList(["accept", "application/json, text/*;q=0.9, */*;q=0.5"]);
  const query: string[] = [];
  const cookies: string[] = [];
  const segments = new Map<string, string>();
  for (const parameter of operation.parameters) {
    const value = Object.hasOwn(args, parameter.argument) ? args[parameter.argument] : undefined;
    if (value === undefined || value === null) {
      if (parameter.isRequired) throw new ArgumentProblem(`the argument "${parameter.argument}" is required`);
      continue;
    }
    if (parameter.in === "path") segments.set(parameter.name, encodeSegment(parameter, value));
    else if (parameter.in === "query") query.push(...encodeQuery(parameter, value));
    else if (parameter.in === "cookie") cookies.push(`${encoded(parameter.name)}=${encoded(plain(parameter, value))}`);
    else setHeader(headers, parameter, value);
  }
  if (cookies.length > 0) headers.set("cookie", cookies.join("; "));
  const body = encodeBody(operation, args.body, bodyText);
  if (body) headers.set("content-type", body.type);
  const path = buildPath(operation.path, segments);
  return {
    method: operation.method,
    path: query.length === 0 ? path : `${path}?${query.join("&")}`,
    headers,
    body: body?.bytes,
  };
}

function buildPath(template: string, values: ReadonlyMap<string, string>): string {
  let path = template;
  for (const [placeholder, name] of placeholders(template))
    path = path.replace(placeholder, () => values.get(name) ?? "");
  // The whole path is checked again, because a value may combine with the template (`/.{x}`).
  const fault = pathFault(path);
  if (fault !== undefined) throw new ArgumentProblem(`the arguments would make ${fault}`);
  return canonicalPath(path);
}

function encodeSegment(parameter: Parameter, value: unknown): string {
  const text = plain(parameter, value);
  const segment = pathSegment(text);
  if (segment === undefined)
    throw new ArgumentProblem(
      `the argument "${parameter.argument}" cannot stand in a path: it must be one segment without / and \\`,
    );
  return segment;
}

function encodeQuery(parameter: Parameter, value: unknown): string[] {
  const name = encoded(parameter.name);
  if (parameter.isJson) return [`${name}=${encoded(JSON.stringify(value))}`];
  if (Array.isArray(value)) {
    const items = value.map((one) => encoded(scalar(parameter, one)));
    if (parameter.explode) return items.map((item) => `${name}=${item}`);
    const separator = { spaceDelimited: "%20", pipeDelimited: "%7C" }[parameter.style] ?? ",";
    return [`${name}=${items.join(separator)}`];
  }
  if (!isObject(value)) return [`${name}=${encoded(scalar(parameter, value))}`];
  const pairs = Object.entries(value).map(([key, one]) => [encoded(key), encoded(scalar(parameter, one))] as const);
  if (parameter.style === "deepObject") return pairs.map(([key, one]) => `${name}%5B${key}%5D=${one}`);
  return parameter.explode ? pairs.map(([key, one]) => `${key}=${one}`) : [`${name}=${pairs.flat().join(",")}`];
}

function setHeader(headers: HeaderList, parameter: Parameter, value: unknown): void {
  const text = plain(parameter, value);
  if (!isHeaderValue(text)) throw new ArgumentProblem(`the argument "${parameter.argument}" cannot stand in a header`);
  headers.set(parameter.name.toLowerCase(), text);
}

/** Implements the style `simple`, which joins lists and objects with commas. */
function plain(parameter: Parameter, value: unknown): string {
  if (parameter.isJson) return JSON.stringify(value);
  if (Array.isArray(value)) return value.map((one) => scalar(parameter, one)).join(",");
  if (!isObject(value)) return scalar(parameter, value);
  return Object.entries(value)
    .map(([key, one]) => (parameter.explode ? `${key}=${scalar(parameter, one)}` : `${key},${scalar(parameter, one)}`))
    .join(",");
}

function scalar(parameter: Parameter, value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (value === null || value === undefined) return "";
  throw new ArgumentProblem(`the argument "${parameter.argument}" is nested too deeply for its place`);
}

function encoded(text: string): string {
  try {
    return encodeURIComponent(text);
  } catch {
    throw new ArgumentProblem("an argument is not valid Unicode");
  }
}

function encodeBody(operation: Operation, value: unknown, text: string | undefined) {
  const { body } = operation;
  if (!body) return undefined;
  if (value === undefined || text === undefined) {
    if (body.isRequired) throw new ArgumentProblem('the argument "body" is required');
    return undefined;
  }
  if (body.kind === "json") return { type: body.type, bytes: Buffer.from(text) };
  if (body.kind === "text")
    return { type: `${body.type}; charset=utf-8`, bytes: Buffer.from(typeof value === "string" ? value : text) };
  if (!isObject(value)) throw new ArgumentProblem('the argument "body" must be an object');
  const fields = Object.entries(value).flatMap(([key, one]) =>
    (Array.isArray(one) ? one : [one]).map((item): [string, string] => [key, fieldText(item)]),
  );
  if (body.kind === "form")
    return {
      type: body.type,
      bytes: Buffer.from(fields.map(([key, one]) => `${encoded(key)}=${encoded(one)}`).join("&")),
    };
  return multipart(fields);
}

function fieldText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function multipart(fields: readonly [string, string][]) {
  // No value can contain a boundary that did not exist when the value was sent.
  const boundary = `form-${randomUUID()}`;
  const parts = fields.map(([name, text]) => {
    const shown = name.replace(/["\r\n]/g, encoded);
    return `--${boundary}\r\ncontent-disposition: form-data; name="${shown}"\r\n\r\n${text}\r\n`;
  });
  return {
    type: `multipart/form-data; boundary=${boundary}`,
    bytes: Buffer.from(`${parts.join("")}--${boundary}--\r\n`),
  };
}
