/**
 * Matches of HTTPRoute rules → `matches[]` of the standalone configuration.
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
