/**
 * Applies MCP authorization. Denied items are removed from lists, and calls to denied names fail with the error for an
 * unknown name. Responses to list requests are validated first, because merging, filters, and the name index rely on
 * their structure.
 */
import { lookupTable } from "../../base/lookup-table.ts";
import type { Steps } from "../../base/sliced-work.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
import { find, slice } from "../../json/json-text.ts";
import type { Span } from "../../json/syntax.ts";
import { type Failure, serverFailure } from "./call.ts";
import { asResult, type ClientRequest, INVALID_PARAMS, METHOD_NOT_FOUND, type ServerMessage } from "./json-rpc.ts";
import { itemName, type ListMembers, MAX_MEMBERS, readListContent } from "./list-content.ts";
import { isRequestMethod, listKeyProblem } from "./message-rules.ts";

export type NamedKind = "tool" | "prompt" | "resource";

export interface Named {
  readonly kind: NamedKind;
  readonly name: string;
}

/** Maps each list method to the result member that contains the items and to the item member that contains the name. */
export const LISTS = lookupTable<{ readonly member: string; readonly key: string; readonly kind: NamedKind }>({
  "tools/list": { member: "tools", key: "name", kind: "tool" },
  "prompts/list": { member: "prompts", key: "name", kind: "prompt" },
  "resources/list": { member: "resources", key: "uri", kind: "resource" },
  "resources/templates/list": { member: "resourceTemplates", key: "uriTemplate", kind: "resource" },
});

export function addressedItem(request: ClientRequest): Named | undefined {
  const { params } = request;
  switch (request.method) {
    case "tools/call":
      return named("tool", params.name);
    case "prompts/get":
      return named("prompt", params.name);
    case "resources/read":
    case "resources/subscribe":
    case "resources/unsubscribe":
      return named("resource", params.uri);
    case "completion/complete": {
      const ref = params.ref as { type?: unknown; name?: unknown; uri?: unknown } | undefined;
      return ref?.type === "ref/prompt" ? named("prompt", ref.name) : named("resource", ref?.uri);
    }
    default:
      return undefined;
  }
}

const TITLES: Readonly<Record<NamedKind, string>> = { tool: "tool", prompt: "prompt", resource: "resource" };

export function unknownName(kind: NamedKind, shown: string): Failure {
  return { code: INVALID_PARAMS, status: 200, message: `Unknown ${TITLES[kind]}: ${shown}` };
}

/** The client receives the error for an unknown name. The request records contain the real reason. */
export function deniedName({ kind, name }: Named, target: string, shown = name): Failure {
  return {
    ...unknownName(kind, shown),
    error: "authorization_denied",
    detail: `no rule of mcpAuthorization allows ${kind} "${name}" of target "${target}"`,
  };
}

export function unknownMethod(method: string): Failure {
  return { code: METHOD_NOT_FOUND, status: 404, message: `Method not found: ${method}` };
}

export function accessProblem(
  request: ClientRequest,
  access: McpAccess,
  target: string,
  shown?: string,
): Failure | undefined {
  if (!isRequestMethod(request.method))
    return {
      ...unknownMethod(request.method),
      error: "authorization_denied",
      detail: `mcpAuthorization cannot judge the method "${request.method}"`,
    };
  const about = addressedItem(request);
  const call = about?.kind === "tool" ? request.params : undefined;
  if (about === undefined || access.allows(about.kind, about.name, target, call)) return undefined;
  return deniedName(about, target, shown);
}

export function* filterList(
  message: ServerMessage,
  method: string,
  isKept: (name: string) => boolean,
): Steps<ServerMessage> {
  const { text } = message;
  const list = LISTS[method];
  if (!list || message.kind !== "result") return message;
  const { members, items = [] } = yield* readListContent(message, list);
  if (!members.some(({ key }) => key === list.member)) return message;
  const kept: string[] = [];
  for (const item of items) {
    if (item.nameEnd > 0 && isKept(itemName(text, item))) kept.push(slice(text, item));
    yield;
  }
  return yield* buildListResult(message, list, kept);
}

const LIST_SCALARS: ReadonlySet<string> = new Set(["nextCursor", "resultType", "ttlMs", "cacheScope"]);

/**
 * Builds a list result from the given items. It keeps only the known scalar members of the server's result, because
 * other members, such as `_meta` or a second list, were not checked and could contain withheld items.
 */
export function* buildListResult(
  message: ServerMessage,
  list: ListMembers,
  items: readonly string[],
): Steps<ServerMessage> {
  const { text } = message;
  const { members } = yield* readListContent(message, list);
  const parts = [`"${list.member}":[${items.join(",")}]`];
  for (const one of members)
    if (LIST_SCALARS.has(one.key) && !"[{".includes(text[one.start] ?? ""))
      parts.push(`"${one.key}":${slice(text, one)}`);
  return asResult(`{${parts.join(",")}}`);
}

function named(kind: NamedKind, name: unknown): Named | undefined {
  return typeof name === "string" ? { kind, name } : undefined;
}

export function* listProblem(
  request: ClientRequest,
  message: ServerMessage,
  target: string,
): Steps<Failure | undefined> {
  const list = LISTS[request.method];
  if (list === undefined || message.kind !== "result") return undefined;
  const what = yield* listContentProblem(message, list, find(request.text, 0, "params", "cursor"), request);
  if (what === undefined) return undefined;
  return serverFailure(`target "${target}" answered ${request.method} with ${what}`);
}

function* listContentProblem(
  message: ServerMessage,
  list: ListMembers,
  asked: Span | undefined,
  request: ClientRequest,
): Steps<string | undefined> {
  const { text } = message;
  const { members: top, items, itemProblem } = yield* readListContent(message, list);
  if (items === undefined) return `no list of ${list.member}`;
  if (top.length > MAX_MEMBERS) return `a result with more than ${MAX_MEMBERS} members`;
  const unclear = listKeyProblem(list.member, top);
  if (unclear !== undefined) return `a result that can be read in two ways: ${unclear}`;
  if (itemProblem !== undefined) return itemProblem;
  const cursor = top.find(({ key }) => key === "nextCursor");
  const next = cursor && slice(text, cursor);
  // Some servers send null instead of omitting the cursor.
  if (next === undefined || next === "null") return undefined;
  if (!next.startsWith('"')) return "a cursor that is not a string";
  return asked && slice(request.text, asked) === next ? "the same cursor again" : undefined;
}
