/**
 * Removes fields that the gateway's loader rejects, one at a time, until it accepts the configuration.
 */
import { type Conversion, close, isObject, protectingPolicy, protectionIn, type Values } from "./conversion.ts";

export interface Problem {
  /** The format is that of the loader, for example `routes[0].policies.cors`. */
  readonly path: string;
  readonly message: string;
}

type Part = string | number;

/** During the check, these values replace variables. They are tried in this order. */
const STAND_INS = ["1", "https://example.com"];
const VARIABLE = /\$\{(\w+)\}/g;

export type Check = (config: Values, environment: Readonly<Record<string, string>>) => readonly Problem[];

/** Throws if a problem has no path to a field that can be removed. */
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
    const present = withItsServer(withItsRoute(withItsRouting(presentPart(config, path))));
    if (present.length === 0) throw new Error(problem.message);
    const inside = path.slice(present.length);
    addDropped(dropped, { path: present, label: labelOf(config, present), inside, reason: reasonOf(problem) });
    // A route with fewer conditions could match more requests, so it is closed.
    const policy = present.includes("matches") ? "condition (matches)" : lostProtection(config, present);
    remove(config, present);
    if (policy !== undefined) closeScope(conversion, present, policy);
  }
  for (const { label, inside, reason } of dropped)
    conversion.leftOut.push(`${label}: ${inside.length === 0 ? "" : `${pathText(inside)}: `}${reason}`);
}

function lostProtection(config: Values, path: readonly Part[]): string | undefined {
  const lost = path.at(-1) === "policies" ? protectionIn(valueAt(config, path)) : undefined;
  return protectingPolicy(path) ?? lost;
}

function withItsRouting(path: Part[]): Part[] {
  const index = path.indexOf("routing");
  return index > 0 && typeof path[index - 1] === "number" ? path.slice(0, index) : path;
}

/** An entry of `tcpRoutes` is removed as a whole, because a part of it could get the connections of other servers. */
function withItsRoute(path: Part[]): Part[] {
  return path[0] === "tcpRoutes" ? path.slice(0, 2) : path;
}

/** These fields select the server, so without them a credential would go to the provider's default server. */
const SELECTS_SERVER = new Set(["baseUrl", "hostOverride", "azureResourceName", "azureResourceType"]);

/** The entry of a list is removed as a whole if the address of its server is. */
function withItsServer(path: Part[]): Part[] {
  if (!SELECTS_SERVER.has(String(path.at(-1)))) return path;
  const entry = path.findLastIndex((part) => typeof part === "number");
  return entry < 0 ? path : path.slice(0, entry + 1);
}

interface Dropped {
  readonly path: readonly Part[];
  readonly label: string;
  /** Points to the field that caused the removal, relative to `path`. */
  readonly inside: readonly Part[];
  readonly reason: string;
}

/** If removing a field makes its parent invalid, only the parent is reported, with the field's reason. */
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

/** Parses paths such as `a.b[0].c` and `a["b.c"]`. */
export function pathParts(path: string): Part[] {
  return [...path.matchAll(/\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.[\]]+)/g)].map(([, quoted, index, name]) =>
    index !== undefined ? Number(index) : (quoted ?? name ?? ""),
  );
}

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
 * Closes the object that contains the policy. For a protecting field outside `policies`, closes the enclosing route,
 * gateway, model, or top-level section. A gateway that forwards connections has no policies, so it is removed.
 */
function closeScope(conversion: Conversion, path: readonly Part[], policy: string): void {
  // An object whose `policies` were rejected as a whole cannot have policies.
  const index = path.slice(0, -1).lastIndexOf("policies");
  const scope = index > 0 ? path.slice(0, index) : scopeOf(path);
  const owner = valueAt(conversion.config, scope);
  if (!isObject(owner)) return;
  if (scope[0] === "gateways" && /^(?:tcp|tls)$/i.test(String(owner.protocol))) {
    conversion.leftOut.push(`${labelOf(conversion.config, scope)}: without its ${policy}, it would accept any client`);
    remove(conversion.config, scope);
    return;
  }
  close(conversion, owner, labelOf(conversion.config, scope), `its ${policy} was not imported`);
}

function scopeOf(path: readonly Part[]): Part[] {
  const [first = "", second = ""] = path;
  if (first === "llm" && second === "models") return path.slice(0, 3);
  return first === "routes" || first === "gateways" ? [first, second] : [first];
}

function firstSentence(message: string): string {
  return (message.split("\n")[0] ?? "").replace(/[.;:,]? (?:Did you mean|did you mean|see docs).*$/, "");
}
