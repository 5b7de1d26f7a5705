/**
 * Rejects messages that a lenient server or client could interpret differently from the gateway. Examples are a name
 * that is a list, a key in another case (Go decodes `Name` as `name`), and a call without an id.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { foldCase } from "../../json/syntax.ts";

type Params = Readonly<Record<string, unknown>>;

/** A message with one of these methods and without an id is invalid. */
const REQUESTS: ReadonlySet<string> = new Set([
  ...["initialize", "ping", "server/discover", "subscriptions/listen", "completion/complete", "logging/setLevel"],
  ...["tools/list", "tools/call", "prompts/list", "prompts/get"],
  ...["resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe"],
  ...["tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"],
]);

/** Maps a method to the member of `params` that contains the name of the tool, prompt, or resource. */
export const NAMED_BY = lookupTable<"name" | "uri">({
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "resources/subscribe": "uri",
  "resources/unsubscribe": "uri",
});

/** Maps the type of a completion reference to the member that contains the name. */
export const REFERENCES = lookupTable<"name" | "uri">({ "ref/prompt": "name", "ref/resource": "uri" });

/** Limits names, URIs, methods, and progress tokens. */
const MAX_NAME_CHARS = 8_192;

/** Limits cursors, log levels, and other strings that are compared, stored, or sent to several servers. */
const MAX_PARAM_CHARS = 65_536;
/**
 * `requestState` is exempt from the limit because servers may keep large state in it and the gateway neither compares
 * nor stores it.
 */
const UNBOUNDED_PARAM = "requestState";

const REMOVED: ReadonlySet<string> = new Set(["resources/subscribe", "resources/unsubscribe"]);

const NOTIFICATION_PREFIX = "notifications/";

interface Keyed {
  readonly key: string;
}

interface Keys {
  readonly exact: ReadonlySet<string>;
  readonly withoutCase: ReadonlyMap<string, string>;
}
const TOP_KEYS = createKeys("jsonrpc", "id", "method", "params", "result", "error");
const PARAM_KEYS = createKeys(
  ...["name", "uri", "ref", "notifications", "arguments", "cursor", "requestState", "taskId", "_meta"],
);
const REFERENCE_KEYS = createKeys("type", "name", "uri");
const LISTEN_LISTS = ["resourceSubscriptions", "taskIds"] as const;
const LISTEN_KEYS = createKeys(...LISTEN_LISTS);
const LIST_KEYS = ["nextCursor", "resultType", "ttlMs", "cacheScope", "_meta"] as const;
const ITEM_KEYS = createKeys(
  ...["name", "title", "description", "icons", "annotations", "_meta"],
  ...["inputSchema", "outputSchema", "execution", "arguments"],
  ...["uri", "uriTemplate", "mimeType", "size"],
);
const ABOUT_KEYS = createKeys(
  ...["protocolVersion", "supportedVersions", "capabilities", "serverInfo", "instructions"],
  ...["resultType", "ttlMs", "cacheScope", "_meta"],
);

export function isRequestMethod(method: string): boolean {
  return REQUESTS.has(method);
}

export function isNotificationMethod(method: string): boolean {
  return method.startsWith(NOTIFICATION_PREFIX);
}

/** Detects a key that differs from a JSON-RPC key only in case. */
export function serverKeyProblem(key: string): string | undefined {
  return ambiguousKeyProblem(TOP_KEYS, [key]);
}

export function listKeyProblem(member: string, members: Iterable<Keyed>): string | undefined {
  let known = listKeys.get(member);
  if (known === undefined) {
    known = createKeys(member, ...LIST_KEYS);
    listKeys.set(member, known);
  }
  return ambiguousMemberProblem(known, members);
}
const listKeys = new Map<string, Keys>();

export function itemKeyProblem(members: Iterable<Keyed>): string | undefined {
  return ambiguousMemberProblem(ITEM_KEYS, members);
}

export function aboutKeyProblem(keys: Iterable<string>): string | undefined {
  return ambiguousKeyProblem(ABOUT_KEYS, keys);
}

export function envelopeProblem(keys: Iterable<string>, method: unknown, hasId: boolean): string | undefined {
  const key = ambiguousKeyProblem(TOP_KEYS, keys);
  if (key !== undefined) return key;
  if (typeof method === "string" && method.length > MAX_NAME_CHARS)
    return `"method" is longer than ${MAX_NAME_CHARS} characters`;
  return !hasId && typeof method === "string" && REQUESTS.has(method)
    ? `${method} is a request and needs an "id"`
    : undefined;
}

/** Parameters of unknown methods are not checked. */
export function paramsProblem(method: string, params: Params): string | undefined {
  const isRequest = REQUESTS.has(method);
  if (!isRequest && !isNotificationMethod(method)) return undefined;
  const keys = Object.keys(params);
  const long = longParam(params, keys);
  if (long !== undefined || !isRequest) return long;
  const key = ambiguousKeyProblem(PARAM_KEYS, keys);
  if (key !== undefined) return key;
  const { _meta: meta } = params;
  if (meta !== undefined && meta !== null && !isObject(meta)) return '"_meta" must be an object';
  const named = NAMED_BY[method];
  // 2026-07-28 removed these methods, so the client must receive the error for an unknown method instead of one for a
  // missing URI.
  if (REMOVED.has(method) && params.uri === undefined && meta !== undefined) return undefined;
  if (named !== undefined) return textProblem(named, params[named]);
  if (method === "completion/complete") return referenceProblem(params.ref);
  return method === "subscriptions/listen" ? listenProblem(params.notifications) : undefined;
}

function longParam(params: Params, keys: readonly string[]): string | undefined {
  for (const key of keys) {
    const value = params[key];
    if (typeof value === "string" && value.length > MAX_PARAM_CHARS && key !== UNBOUNDED_PARAM)
      return `"${key.slice(0, 100)}" is longer than ${MAX_PARAM_CHARS} characters`;
  }
  const { _meta: meta } = params;
  const token = isObject(meta) ? meta.progressToken : undefined;
  return typeof token === "string" && token.length > MAX_NAME_CHARS
    ? `"_meta.progressToken" is longer than ${MAX_NAME_CHARS} characters`
    : undefined;
}

export function isName(value: unknown): value is string {
  return textProblem("name", value) === undefined;
}

function referenceProblem(ref: unknown): string | undefined {
  if (!isObject(ref)) return '"ref" must be an object';
  const key = ambiguousKeyProblem(REFERENCE_KEYS, Object.keys(ref));
  if (key !== undefined) return key;
  const named = typeof ref.type === "string" && Object.hasOwn(REFERENCES, ref.type) ? REFERENCES[ref.type] : undefined;
  if (named === undefined) return '"ref.type" must be "ref/prompt" or "ref/resource"';
  if (Object.hasOwn(ref, named === "name" ? "uri" : "name")) return '"ref" must have either "name" or "uri"';
  return textProblem(`ref.${named}`, ref[named]);
}

function listenProblem(wanted: unknown): string | undefined {
  if (!isObject(wanted)) return '"notifications" must be an object';
  const key = ambiguousKeyProblem(LISTEN_KEYS, Object.keys(wanted));
  if (key !== undefined) return key;
  for (const list of LISTEN_LISTS) {
    const values = wanted[list];
    if (values === undefined) continue;
    if (!Array.isArray(values)) return `"notifications.${list}" must be a list`;
    for (const value of values) {
      const problem = textProblem(`notifications.${list}`, value);
      if (problem !== undefined) return problem;
    }
  }
  return undefined;
}

/** Rejects lone surrogates. They cannot be encoded as UTF-8, so servers would decode different characters. */
function textProblem(where: string, value: unknown): string | undefined {
  if (typeof value !== "string") return `"${where}" must be a string`;
  if (value.length > MAX_NAME_CHARS) return `"${where}" is longer than ${MAX_NAME_CHARS} characters`;
  return value.isWellFormed() ? undefined : `"${where}" is not valid Unicode`;
}

function ambiguousKeyProblem(known: Keys, keys: Iterable<string>): string | undefined {
  for (const key of keys) {
    const problem = keyProblem(known, key);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function ambiguousMemberProblem(known: Keys, members: Iterable<Keyed>): string | undefined {
  for (const { key } of members) {
    const problem = keyProblem(known, key);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function keyProblem(known: Keys, key: string): string | undefined {
  if (known.exact.has(key)) return undefined;
  const meant = known.withoutCase.get(foldCase(key));
  return meant && `the key ${JSON.stringify(key)} must be written "${meant}"`;
}

function createKeys(...keys: readonly string[]): Keys {
  return { exact: new Set(keys), withoutCase: new Map(keys.map((key) => [foldCase(key), key])) };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
