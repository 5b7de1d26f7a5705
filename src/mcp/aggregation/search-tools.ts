/**
 * The three tools that a client gets instead of a long list (`toolMode: search`), and what a call of the third one
 * means: the call of another tool. It is unwrapped where the request is read, so that rules, limits and records see
 * the tool that is really called.
 */

import { find, member, slice } from "../../json/json-text.ts";
import { withMembers } from "../../json/text-members.ts";
import { editedRequest } from "../protocol/edited-request.ts";
import type { ClientMessage, ClientRequest } from "../protocol/json-rpc.ts";
import { isName } from "../protocol/message-rules.ts";

export const FIND_TOOLS = "find_tools";
export const DESCRIBE_TOOL = "describe_tool";
export const CALL_TOOL = "call_tool";

/** A longer text is no question; its words would be looked for in one go. */
export const MAX_QUERY_CHARS = 1_000;

export const SEARCH_TOOLS_JSON = JSON.stringify([
  {
    name: FIND_TOOLS,
    description:
      "Finds tools by what they do. Many tools are available that are not listed here: search before you decide that something cannot be done.",
    inputSchema: {
      type: "object",
      properties: {
        query: {
          type: "string",
          maxLength: MAX_QUERY_CHARS,
          description: "What you want to do, in a few words. Empty: all tools.",
        },
        limit: { type: "integer", minimum: 1, maximum: 50, default: 10 },
        offset: { type: "integer", minimum: 0, default: 0 },
      },
    },
    annotations: { readOnlyHint: true },
  },
  {
    name: DESCRIBE_TOOL,
    description: "The full description and the input schema of a tool that find_tools named.",
    inputSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
    annotations: { readOnlyHint: true },
  },
  {
    name: CALL_TOOL,
    description: "Calls a tool that find_tools named. The arguments must fit the schema that describe_tool shows.",
    inputSchema: {
      type: "object",
      properties: { name: { type: "string" }, arguments: { type: "object", additionalProperties: true } },
      required: ["name"],
    },
  },
]);

/** The messages, with each call through `call_tool` as the call that it means. */
export function unwrapped(parsed: ClientMessage | readonly ClientMessage[]): ClientMessage | readonly ClientMessage[] {
  return Array.isArray(parsed)
    ? (parsed as readonly ClientMessage[]).map(unwrappedMessage)
    : unwrappedMessage(parsed as ClientMessage);
}

export function unwrappedMessage<Message extends ClientMessage>(message: Message): Message | ClientRequest {
  return message.kind === "request" ? unwrappedCall(message) : message;
}

/** What has no name to call stays as it is: it is answered with what is missing. */
export function unwrappedCall(request: ClientRequest): ClientRequest {
  const { params, text } = request;
  if (request.method !== "tools/call" || params.name !== CALL_TOOL) return request;
  const outer = params.arguments as { readonly name?: unknown; readonly arguments?: unknown } | null | undefined;
  const { name } = outer ?? {};
  if (!isName(name) || name === CALL_TOOL) return request;
  const span = find(text, 0, "params");
  const wrapped = span && member(text, span.start, "arguments");
  if (!span || !wrapped) return request;
  const inner = member(text, wrapped.start, "arguments");
  const changes = new Map<string, string | undefined>([
    ["name", JSON.stringify(name)],
    ["arguments", inner && slice(text, inner)],
  ]);
  const { arguments: _wrapped, ...rest } = params;
  const meant = { ...rest, name, ...(inner ? { arguments: outer?.arguments } : {}) };
  return editedRequest(request, [{ start: span.start, end: span.end, text: withMembers(text, span, changes) }], meant);
}
