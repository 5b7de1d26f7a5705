/**
 * Makes a conversion valid: removes each field that the gateway's own loader rejects, reports it with the loader's
 * reason, and repeats until the loader accepts the result. The result of an import therefore always loads.
 */
import { type Conversion, close, isObject, protectingPolicy, type Values } from "./conversion.ts";

export interface Problem {
  /** For example `routes[0].policies.cors`. */
  readonly path: string;
  readonly message: string;
}

type Part = string | number;

/** Values tried in order for variables that are not set: a number, then a URL. */
const STAND_INS = ["1", "https://example.com"];
const VARIABLE = /\$\{(\w+)\}/g;

export type Check = (config: Values, environment: Readonly<Record<string, string>>) => readonly Problem[];

/** Throws if a problem does not belong to a field. */
export function dropInvalid(conversion: Conversion, check: Check): void {
  const { config } = conversion;
  const environment: Record<string, string> = {};
  for (const [, name = ""] of JSON.stringify(config).matchAll(VARIABLE)) environment[name] = STAND_INS[0] ?? "";
  const dropped: Dropped[] = [];
  for (;;) {
    const [problem] = check(config, environment);
    if (!problem) break;
    const path = pathParts(problem.path);
    if (tryAnotherValue(valueAt(config, path), environment)) continue;
    const present = withItsRouting(presentPart(config, path));
    if (present.length === 0) throw new Error(problem.message);
    const inside = path.slice(present.length);
    addDropped(dropped, { path: present, label: labelOf(config, present), inside, reason: reasonOf(problem) });
    remove(config, present);
    // A route with fewer conditions matches more requests, and a removed route leaves its requests to another one.
    const policy = present.includes("matches") ? "condition (matches)" : protectingPolicy(present);
    if (policy !== undefined) closeScope(conversion, present, policy);
  }
  for (const { label, inside, reason } of dropped)
    conversion.leftOut.push(`${label}: ${inside.length === 0 ? "" : `${pathText(inside)}: `}${reason}`);
}

/** Removes a virtual model as a whole, because with incomplete routing it would select the wrong models. */
function withItsRouting(path: Part[]): Part[] {
  const index = path.indexOf("routing");
  return index > 0 && typeof path[index - 1] === "number" ? path.slice(0, index) : path;
}

interface Dropped {
  readonly path: readonly Part[];
  readonly label: string;
  /** The path, relative to `path`, of the field that caused the removal. */
  readonly inside: readonly Part[];
  readonly reason: string;
}

/**
 * Merges entries: if removing a field makes its parent invalid, the parent is reported with the reason of the field.
 */
function addDropped(dropped: Dropped[], next: Dropped): void {
  const last = dropped.at(-1);
  const isWhole =
    last && last.path.length > next.path.length && next.path.every((part, index) => last.path[index] === part);
  if (!isWhole) {
    dropped.push(next);
    return;
  }
  const inside = [...last.path.slice(next.path.length), ...last.inside];
  dropped[dropped.length - 1] = { ...next, inside, reason: last.reason };
}

/** Includes the name of a list entry, because indexes change when entries are removed. */
function labelOf(config: Values, path: readonly Part[]): string {
  const value = valueAt(config, path);
  const name = typeof path.at(-1) === "number" && isObject(value) ? value.name : undefined;
  return `${pathText(path)}${typeof name === "string" ? ` (${name})` : ""}`;
}

function reasonOf({ message }: Problem): string {
  return message.startsWith("unknown field") ? "there is no counterpart" : firstSentence(message);
}

function pathText(path: readonly Part[]): string {
  return path.reduce<string>(
    (text, part) => `${text}${typeof part === "number" ? `[${part}]` : text === "" ? part : `.${part}`}`,
    "",
  );
}

function tryAnotherValue(value: unknown, environment: Record<string, string>): boolean {
  if (typeof value !== "string") return false;
  for (const [, name = ""] of value.matchAll(VARIABLE)) {
    const next = STAND_INS[STAND_INS.indexOf(environment[name] ?? "") + 1];
    if (next === undefined) continue;
    environment[name] = next;
    return true;
  }
  return false;
}

/** Parses `a.b[0].c`; names with other characters are written as `["a.b"]`. */
export function pathParts(path: string): Part[] {
  return [...path.matchAll(/\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.[\]]+)/g)].map(([, quoted, index, name]) =>
    index !== undefined ? Number(index) : (quoted ?? name ?? ""),
  );
}

/** Returns the longest prefix of the path that exists. A missing field is a problem of its parent. */
function presentPart(config: Values, path: readonly Part[]): Part[] {
  for (let length = path.length; length > 0; length -= 1) {
    const part = path.slice(0, length);
    if (valueAt(config, part) !== undefined) return part;
  }
  return [];
}

function valueAt(config: unknown, path: readonly Part[]): unknown {
  return path.reduce<unknown>((value, part) => {
    if (Array.isArray(value)) return value[Number(part)];
    return isObject(value) && Object.hasOwn(value, part) ? value[part] : undefined;
  }, config);
}

function remove(config: Values, path: readonly Part[]): void {
  const owner = valueAt(config, path.slice(0, -1));
  const last = path.at(-1) ?? "";
  if (Array.isArray(owner)) owner.splice(Number(last), 1);
  else if (isObject(owner)) delete owner[last];
}

/**
 * Closes the object that has the policies. A protecting field outside of `policies` closes the nearest object that can
 * have them.
 */
function closeScope(conversion: Conversion, path: readonly Part[], policy: string): void {
  const index = path.lastIndexOf("policies");
  const scope = index > 0 ? path.slice(0, index) : scopeOf(path);
  const owner = valueAt(conversion.config, scope);
  if (!isObject(owner)) return;
  close(conversion, owner, labelOf(conversion.config, scope), `its ${policy} was not imported`);
}

function scopeOf(path: readonly Part[]): Part[] {
  const [first = "", second = ""] = path;
  return first === "routes" || first === "gateways" ? [first, second] : [first];
}

function firstSentence(message: string): string {
  return (message.split("\n")[0] ?? "").replace(/[.;:,]? (?:Did you mean|did you mean|see docs).*$/, "");
}
