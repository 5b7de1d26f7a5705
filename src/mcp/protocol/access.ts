/**
 * What an MCP authorization policy leaves of a request: lists without what may not be used, and calls of it
 * answered as if it did not exist, so that nobody learns the names of what he may not see.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import type { Steps } from "../../base/turns.ts";
import type { McpAccess } from "../../core/facts.ts";
import { elementsInSteps, findInSteps, memberOf, membersInSteps, slice } from "../../json/json-text.ts";
import { type Call, type Failure, withAnswerInTurns } from "./call.ts";
import { asResult, type ClientRequest, INVALID_PARAMS, METHOD_NOT_FOUND, type ServerMessage } from "./json-rpc.ts";
import { isRequestMethod } from "./message-rules.ts";

export type NamedKind = "tool" | "prompt" | "resource";

export interface Named {
  readonly kind: NamedKind;
  /** A tool's or prompt's name, or a resource's URI. */
  readonly name: string;
}

/** The lists of each method: the member of the result, and the member of an item that names it. */
export const LISTS = lookupTable<{ readonly member: string; readonly key: string; readonly kind: NamedKind }>({
  "tools/list": { member: "tools", key: "name", kind: "tool" },
  "prompts/list": { member: "prompts", key: "name", kind: "prompt" },
  "resources/list": { member: "resources", key: "uri", kind: "resource" },
  "resources/templates/list": { member: "resourceTemplates", key: "uriTemplate", kind: "resource" },
});

/** What a request is about, as the client named it. */
export function namedIn(request: ClientRequest): Named | undefined {
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

/** The answer for a name that does not exist or may not be used; `shown` is the name as the client sent it. */
export function unknownName(kind: NamedKind, shown: string): Failure {
  return { code: INVALID_PARAMS, status: 200, message: `Unknown ${TITLES[kind]}: ${shown}` };
}

/** To the client it looks like an unknown name; the records say what happened. */
export function deniedName({ kind, name }: Named, target: string, shown = name): Failure {
  return {
    ...unknownName(kind, shown),
    error: "authorization_denied",
    detail: `no rule of mcpAuthorization allows ${kind} "${name}" of target "${target}"`,
  };
}

/** A method that the protocol does not know could do anything: rules about names say nothing about it. */
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
  const about = namedIn(request);
  const call = about?.kind === "tool" ? request.params : undefined;
  if (about === undefined || access.allows(about.kind, about.name, target, call)) return undefined;
  return deniedName(about, target, shown);
}

/** The call, with what may not be used taken out of the answer if it is a list. */
export function filteredCall(call: Call, access: McpAccess, target: string): Call {
  const list = LISTS[call.request.method];
  if (list === undefined) return call;
  return withAnswerInTurns(call, (message) =>
    filterList(message, call.request.method, (name) => access.allows(list.kind, name, target)),
  );
}

export function* filterList(
  message: ServerMessage,
  method: string,
  isKept: (name: string) => boolean,
): Steps<ServerMessage> {
  const { text } = message;
  const list = LISTS[method];
  const span = list && message.kind === "result" ? yield* findInSteps(text, 0, "result", list.member) : undefined;
  if (!list || !span) return message;
  const kept: string[] = [];
  for (const item of yield* elementsInSteps(text, span.start)) {
    const name = yield* memberOf(text, item, list.key);
    if (name !== undefined && isKept(String(JSON.parse(slice(text, name))))) kept.push(slice(text, item));
    yield;
  }
  return yield* listOf(message, list.member, kept);
}

/** Members of a list's result that stay beside the list, where they are strings or numbers. */
const LIST_SCALARS: ReadonlySet<string> = new Set(["nextCursor", "resultType", "ttlMs", "cacheScope"]);

/**
 * The result of a list with these items, written anew. Nobody judged the other members that a server adds (`_meta`, a
 * second list under a name of its own): where items were withheld, they could return there.
 */
export function* listOf(message: ServerMessage, member: string, items: readonly string[]): Steps<ServerMessage> {
  const { text } = message;
  const result = yield* findInSteps(text, 0, "result");
  const parts = [`"${member}":[${items.join(",")}]`];
  for (const one of result ? yield* membersInSteps(text, result.start) : [])
    if (LIST_SCALARS.has(one.key) && !"[{".includes(text[one.start] ?? ""))
      parts.push(`"${one.key}":${slice(text, one)}`);
  return asResult(`{${parts.join(",")}}`);
}

function named(kind: NamedKind, name: unknown): Named | undefined {
  return typeof name === "string" ? { kind, name } : undefined;
}
