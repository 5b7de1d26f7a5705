/**
 * Filters of HTTPRoute rules → policies as the standalone configuration writes them. A filter that we cannot honour
 * is never skipped: it may be what protects the backend, so the rule is closed instead.
 */

import { lookupTable } from "../../lib/text/lookup-table.ts";
import { isObject, listOf } from "../text/value-shapes.ts";

export interface TranslatedFilters {
  readonly policies: Readonly<Record<string, unknown>>;
  /** The first filter that cannot be honoured. */
  readonly unsupported: { readonly index: number; readonly reason: string } | undefined;
}

type Fields = Readonly<Record<string, unknown>>;

/** Gives the policy's kind and configuration, or the reason why there is none. */
type Filter = (fields: Fields) => readonly [kind: string, config: unknown] | string;

const FILTERS = lookupTable<{ readonly field: string; readonly translate: Filter }>({
  RequestHeaderModifier: {
    field: "requestHeaderModifier",
    translate: (fields) => ["requestHeaderModifier", headerChanges(fields)],
  },
  ResponseHeaderModifier: {
    field: "responseHeaderModifier",
    translate: (fields) => ["responseHeaderModifier", headerChanges(fields)],
  },
  RequestRedirect: { field: "requestRedirect", translate: redirect },
  URLRewrite: { field: "urlRewrite", translate: rewrite },
  CORS: { field: "cors", translate: cors },
});

/** `findMirror` gives what stands behind the reference of a RequestMirror, or nothing: then nothing is mirrored. */
export function translateFilters(
  filters: readonly unknown[],
  findMirror: (reference: Fields, index: number) => Fields | undefined,
): TranslatedFilters {
  const policies: Record<string, unknown> = {};
  const mirrors: Record<string, unknown>[] = [];
  for (const [index, filter] of filters.entries()) {
    const type = isObject(filter) ? String(filter.type) : "";
    if (type === "RequestMirror" && isObject(filter) && isObject(filter.requestMirror)) {
      const { backendRef, percent, fraction } = filter.requestMirror;
      const found = isObject(backendRef) ? findMirror(backendRef, index) : undefined;
      if (found) mirrors.push({ ...found, ...sharePercent(percent, fraction) });
      continue;
    }
    const known = FILTERS[type];
    const fields = known && isObject(filter) ? filter[known.field] : undefined;
    if (!known)
      return { policies, unsupported: { index, reason: `the filter ${type || "without a type"} is not supported` } };
    if (!isObject(fields)) return { policies, unsupported: { index, reason: `\`${known.field}\` is missing` } };
    const translated = known.translate(fields);
    if (typeof translated === "string") return { policies, unsupported: { index, reason: translated } };
    const [kind, config] = translated;
    if (policies[kind] !== undefined) return { policies, unsupported: { index, reason: `${type} is given twice` } };
    policies[kind] = config;
  }
  if (mirrors.length > 0) policies.requestMirror = mirrors;
  return { policies, unsupported: undefined };
}

function sharePercent(percent: unknown, fraction: unknown): { percent?: unknown } {
  if (percent !== undefined) return { percent };
  if (!isObject(fraction)) return {};
  const { numerator, denominator = 100 } = fraction;
  return { percent: (Number(numerator) / Number(denominator)) * 100 };
}

function headerChanges({ set, add, remove }: Fields): Record<string, unknown> {
  return {
    ...(set === undefined ? {} : { set: namedValues(set) }),
    ...(add === undefined ? {} : { add: namedValues(add) }),
    ...(remove === undefined ? {} : { remove }),
  };
}

/** `[{ name, value }]` as an object; anything else is left for the policy's schema to refuse. */
function namedValues(list: unknown): unknown {
  if (!Array.isArray(list)) return list;
  return Object.fromEntries(list.filter(isObject).map(({ name, value }) => [String(name), value]));
}

function redirect({ scheme, hostname, port, path, statusCode }: Fields): readonly [string, unknown] | string {
  const changed = pathChange(path);
  if (typeof changed === "string") return changed;
  return [
    "requestRedirect",
    {
      ...(scheme === undefined ? {} : { scheme }),
      ...(hostname === undefined ? {} : { authority: hostname }),
      ...(port === undefined ? {} : { port }),
      ...changed,
      ...(statusCode === undefined ? {} : { status: statusCode }),
    },
  ];
}

function rewrite({ hostname, path }: Fields): readonly [string, unknown] | string {
  const changed = pathChange(path);
  if (typeof changed === "string") return changed;
  return ["urlRewrite", { ...(hostname === undefined ? {} : { authority: hostname }), ...changed }];
}

function pathChange(path: unknown): { path?: unknown } | string {
  if (path === undefined) return {};
  if (!isObject(path)) return "expected `path` to be an object";
  if (path.type === "ReplaceFullPath") return { path: { full: path.replaceFullPath } };
  if (path.type === "ReplacePrefixMatch") return { path: { prefix: path.replacePrefixMatch } };
  return `the path modifier ${String(path.type)} is not supported`;
}

function cors({ maxAge, ...fields }: Fields): readonly [string, unknown] {
  return [
    "cors",
    { ...fields, ...(maxAge === undefined ? {} : { maxAge: typeof maxAge === "number" ? `${maxAge}s` : maxAge }) },
  ];
}

export function filtersOf(holder: Fields): readonly unknown[] {
  return listOf(holder.filters);
}
