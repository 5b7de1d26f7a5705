/**
 * Matches of HTTPRoute and GRPCRoute rules → `matches[]` of the standalone configuration.
 */

import { isObject, listOf } from "../text/value-shapes.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The match as written there, or what is not supported. */
export function translateMatch({ path, headers, queryParams, method }: Fields): Record<string, unknown> | string {
  const translatedPath = path === undefined ? {} : translatePath(path);
  if (typeof translatedPath === "string") return translatedPath;
  const translatedHeaders = translateValues(headers, "header");
  if (typeof translatedHeaders === "string") return translatedHeaders;
  const translatedQuery = translateValues(queryParams, "query");
  if (typeof translatedQuery === "string") return translatedQuery;
  return {
    ...translatedPath,
    ...(method === undefined ? {} : { method }),
    ...(translatedHeaders.length === 0 ? {} : { headers: translatedHeaders }),
    ...(translatedQuery.length === 0 ? {} : { query: translatedQuery }),
  };
}

/** A call of gRPC is a request whose path is `/service/method`. */
export function translateGrpcMatch({ method, headers }: Fields): Record<string, unknown> | string {
  const path = method === undefined ? { pathPrefix: "/" } : grpcPath(method);
  if (typeof path === "string") return path;
  const translatedHeaders = translateValues(headers, "header");
  if (typeof translatedHeaders === "string") return translatedHeaders;
  return { path, ...(translatedHeaders.length === 0 ? {} : { headers: translatedHeaders }) };
}

function grpcPath(written: unknown): Record<string, unknown> | string {
  if (!isObject(written)) return "expected `method` to be an object";
  const { type = "Exact", service, method } = written;
  const isText = (value: unknown): boolean => value === undefined || (typeof value === "string" && value !== "");
  if (!isText(service) || !isText(method) || (service === undefined && method === undefined))
    return "expected `service` or `method`";
  if (type === "RegularExpression")
    return {
      regex: `/${service === undefined ? "[^/]+" : `(?:${service})`}/${method === undefined ? "[^/]+" : `(?:${method})`}`,
    };
  if (type !== "Exact") return `the method match ${String(type)} is not supported`;
  if (method === undefined) return { pathPrefix: `/${String(service)}` };
  if (service === undefined) return { regex: `/[^/]+/${String(method).replace(/[^A-Za-z0-9_]/g, "\\$&")}` };
  return { exact: `/${String(service)}/${String(method)}` };
}

function translatePath(path: unknown): { path: Record<string, unknown> } | string {
  if (!isObject(path)) return "expected `path` to be an object";
  const { type = "PathPrefix", value = "/" } = path;
  if (type === "Exact") return { path: { exact: value } };
  if (type === "PathPrefix") return { path: { pathPrefix: value } };
  if (type === "RegularExpression") return { path: { regex: value } };
  return `the path match ${String(type)} is not supported`;
}

function translateValues(written: unknown, what: string): Record<string, unknown>[] | string {
  const values: Record<string, unknown>[] = [];
  for (const match of listOf(written)) {
    if (!isObject(match)) return `expected a ${what} match to be an object`;
    const { type = "Exact", name, value } = match;
    if (type === "Exact") values.push({ name, exact: value });
    else if (type === "RegularExpression") values.push({ name, regex: value });
    else return `the ${what} match ${String(type)} is not supported`;
  }
  return values;
}
