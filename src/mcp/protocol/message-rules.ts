/**
 * What a client's message must be so that the gateway and every server read the same in it. Authorization, limits
 * and the log decide by what is read here; a lenient server could read something else in a name that is a list, in
 * a key of another case (Go's decoder takes `Name` for `name`) or in a call without an id, so these are refused.
 * The rule about keys holds for servers as well: a client that ignores case must not read what the gateway withheld.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { foldCase } from "../../json/syntax.ts";

type Params = Readonly<Record<string, unknown>>;

/** Everything that a client may ask a server, in any revision. Sent without an id it is no notification. */
const REQUESTS: ReadonlySet<string> = new Set([
  ...["initialize", "ping", "server/discover", "subscriptions/listen", "completion/complete", "logging/setLevel"],
  ...["tools/list", "tools/call", "prompts/list", "prompts/get"],
  ...["resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe"],
  ...["tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"],
]);

/** The member of `params` that says what a request is about. */
export const NAMED_BY = lookupTable<"name" | "uri">({
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "resources/subscribe": "uri",
  "resources/unsubscribe": "uri",
});

/** The same for what a completion refers to, by its type. */
export const REFERENCES = lookupTable<"name" | "uri">({ "ref/prompt": "name", "ref/resource": "uri" });

/** Names, URIs and methods stand in records of recent requests and in log lines. */
const MAX_NAME_CHARS = 8_192;

/** Cursors, log levels and other texts that are compared, copied to several servers, or kept. */
const MAX_PARAM_CHARS = 65_536;
/** `requestState` carries the state of a server, which may be large; it is neither compared nor kept. */
const UNBOUNDED_PARAM = "requestState";

const REMOVED: ReadonlySet<string> = new Set(["resources/subscribe", "resources/unsubscribe"]);

const NOTIFICATION_PREFIX = "notifications/";

/** Keys as they must be written, and by their form without case. */
interface Keys {
  readonly exact: ReadonlySet<string>;
  readonly withoutCase: ReadonlyMap<string, string>;
}
const TOP_KEYS = keysOf("jsonrpc", "id", "method", "params", "result", "error");
const PARAM_KEYS = keysOf(
  ...["name", "uri", "ref", "notifications", "arguments", "cursor", "requestState", "taskId", "_meta"],
);
const REFERENCE_KEYS = keysOf("type", "name", "uri");
const LISTEN_LISTS = ["resourceSubscriptions", "taskIds"] as const;
const LISTEN_KEYS = keysOf(...LISTEN_LISTS);
/** Of the result of a list, besides the list itself. */
const LIST_KEYS = ["nextCursor", "resultType", "ttlMs", "cacheScope", "_meta"] as const;
const ITEM_KEYS = keysOf(
  ...["name", "title", "description", "icons", "annotations", "_meta"],
  ...["inputSchema", "outputSchema", "execution", "arguments"],
  ...["uri", "uriTemplate", "mimeType", "size"],
);
/** Of the result of `initialize` or `server/discover`. */
const ABOUT_KEYS = keysOf(
  ...["protocolVersion", "supportedVersions", "capabilities", "serverInfo", "instructions"],
  ...["resultType", "ttlMs", "cacheScope", "_meta"],
);

/** Whether the protocol knows the method as a request of clients. */
export function isRequestMethod(method: string): boolean {
  return REQUESTS.has(method);
}

/** Whether a message without an id may be one: what a policy cannot judge, it does not let pass. */
export function isNotificationMethod(method: string): boolean {
  return method.startsWith(NOTIFICATION_PREFIX);
}

/** A key of a server's message that could be taken for one of JSON-RPC. */
export function serverKeyProblem(key: string): string | undefined {
  return likeOneOf(TOP_KEYS, [key]);
}

/** The same for the result of a list whose items stand under `member`. */
export function listKeyProblem(member: string, keys: readonly string[]): string | undefined {
  let known = listKeys.get(member);
  if (known === undefined) {
    known = keysOf(member, ...LIST_KEYS);
    listKeys.set(member, known);
  }
  return likeOneOf(known, keys);
}
const listKeys = new Map<string, Keys>();

/** The same for a tool, prompt, resource or template in a list. */
export function itemKeyProblem(keys: Iterable<string>): string | undefined {
  return likeOneOf(ITEM_KEYS, keys);
}

/** The same for what a server says of itself. */
export function aboutKeyProblem(keys: Iterable<string>): string | undefined {
  return likeOneOf(ABOUT_KEYS, keys);
}

/** What is wrong with the message itself. */
export function envelopeProblem(keys: Iterable<string>, method: unknown, hasId: boolean): string | undefined {
  const key = likeOneOf(TOP_KEYS, keys);
  if (key !== undefined) return key;
  if (typeof method === "string" && method.length > MAX_NAME_CHARS)
    return `"method" is longer than ${MAX_NAME_CHARS} characters`;
  return !hasId && typeof method === "string" && REQUESTS.has(method)
    ? `${method} is a request and needs an "id"`
    : undefined;
}

/** What is wrong with the parameters of a message that the protocol knows. */
export function paramsProblem(method: string, params: Params): string | undefined {
  const isRequest = REQUESTS.has(method);
  if (!isRequest && !isNotificationMethod(method)) return undefined;
  const keys = Object.keys(params);
  const long = longParam(params, keys);
  if (long !== undefined || !isRequest) return long;
  const key = likeOneOf(PARAM_KEYS, keys);
  if (key !== undefined) return key;
  const { _meta: meta } = params;
  if (meta !== undefined && meta !== null && !isObject(meta)) return '"_meta" must be an object';
  const named = NAMED_BY[method];
  // The 2026 era has no such methods: asked without a URI they are refused as unknown, not for what they lack.
  if (REMOVED.has(method) && params.uri === undefined && meta !== undefined) return undefined;
  if (named !== undefined) return textProblem(named, params[named]);
  if (method === "completion/complete") return referenceProblem(params.ref);
  return method === "subscriptions/listen" ? listenProblem(params.notifications) : undefined;
}

/** Texts that the gateway looks up or sends to several servers are short; contents are in objects. */
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

/** Whether a value can be the name of a tool. */
export function isName(value: unknown): value is string {
  return textProblem("name", value) === undefined;
}

function referenceProblem(ref: unknown): string | undefined {
  if (!isObject(ref)) return '"ref" must be an object';
  const key = likeOneOf(REFERENCE_KEYS, Object.keys(ref));
  if (key !== undefined) return key;
  const named = typeof ref.type === "string" && Object.hasOwn(REFERENCES, ref.type) ? REFERENCES[ref.type] : undefined;
  if (named === undefined) return '"ref.type" must be "ref/prompt" or "ref/resource"';
  if (Object.hasOwn(ref, named === "name" ? "uri" : "name")) return '"ref" must have either "name" or "uri"';
  return textProblem(`ref.${named}`, ref[named]);
}

function listenProblem(wanted: unknown): string | undefined {
  if (!isObject(wanted)) return '"notifications" must be an object';
  const key = likeOneOf(LISTEN_KEYS, Object.keys(wanted));
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

/** A lone surrogate has no UTF-8 form: each server would make another character of it. */
function textProblem(where: string, value: unknown): string | undefined {
  if (typeof value !== "string") return `"${where}" must be a string`;
  if (value.length > MAX_NAME_CHARS) return `"${where}" is longer than ${MAX_NAME_CHARS} characters`;
  return value.isWellFormed() ? undefined : `"${where}" is not valid Unicode`;
}

/** A key that a decoder which ignores case takes for a known one. */
function likeOneOf(known: Keys, keys: Iterable<string>): string | undefined {
  for (const key of keys) {
    if (known.exact.has(key)) continue;
    const meant = known.withoutCase.get(foldCase(key));
    if (meant !== undefined) return `the key ${JSON.stringify(key)} must be written "${meant}"`;
  }
  return undefined;
}

function keysOf(...keys: readonly string[]): Keys {
  return { exact: new Set(keys), withoutCase: new Map(keys.map((key) => [foldCase(key), key])) };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
