/**
 * Puts names into messages, in place: the target's own into requests, the client's into answers, lists and
 * notifications. Everything else of a message stays as its sender wrote it.
 */
import { LISTS, type NamedKind } from "../wire/access.ts";
import { editedRequest } from "../wire/edited-request.ts";
import { type ClientRequest, edited, type ServerMessage } from "../wire/json-rpc.ts";
import { type Edit, elements, find, member, type Span, slice, splice } from "../wire/json-text.ts";
import { NAMED_BY, REFERENCES } from "../wire/message-rules.ts";
import type { Names } from "./names.ts";

/** The request with the name that the target knows. */
export function renamedRequest(request: ClientRequest, name: string): ClientRequest {
  const { params } = request;
  const member = NAMED_BY[request.method];
  const ref = params.ref as { readonly type: string } | undefined;
  const path = member === undefined ? ["ref", REFERENCES[ref?.type ?? ""] ?? ""] : [member];
  const span = find(request.text, 0, "params", ...path);
  if (!span) return request;
  const renamed = member === undefined ? { ref: { ...ref, [path[1] as string]: name } } : { [member]: name };
  return editedRequest(request, [{ ...span, text: JSON.stringify(name) }], { ...params, ...renamed });
}

/** One item of a list, as the client shall see it. */
export function renamedItem(text: string, item: Span, method: string, names: Names, target: string): string {
  const list = LISTS[method];
  const span = list && member(text, item.start, list.key);
  if (!list || !span || !names.isPrefixed) return slice(text, item);
  const edits = [renaming(text, span, list.kind, names, target)];
  // A tool may name the resource that shows it.
  for (const path of [
    ["_meta", "ui", "resourceUri"],
    ["_meta", "ui/resourceUri"],
  ]) {
    const uri = method === "tools/list" ? find(text, item.start, ...path) : undefined;
    if (uri) edits.push(renaming(text, uri, "resource", names, target));
  }
  return splice(
    slice(text, item),
    edits.map((edit) => ({ ...edit, start: edit.start - item.start, end: edit.end - item.start })),
  );
}

/** URIs inside a result, so that the client can read what it was pointed to. */
export function renamedResult(message: ServerMessage, method: string, names: Names, target: string): ServerMessage {
  if (!names.isPrefixed || message.kind !== "result") return message;
  const { text } = message;
  const spans: Span[] = [];
  if (method === "resources/read") spans.push(...urisOf(text, find(text, 0, "result", "contents"), ["uri"]));
  else if (method === "tools/call") spans.push(...contentUris(text, find(text, 0, "result", "content")));
  else if (method === "prompts/get") {
    for (const one of elements(text, find(text, 0, "result", "messages")?.start ?? text.length)) {
      const content = find(text, one.start, "content");
      if (content)
        spans.push(...(text[content.start] === "[" ? contentUris(text, content) : contentUri(text, content)));
    }
  }
  return spans.length === 0
    ? message
    : edited(
        message,
        spans.map((span) => renaming(text, span, "resource", names, target)),
      );
}

/** A notification about a resource. */
export function renamedNotification(message: ServerMessage, names: Names, target: string): string {
  if (!names.isPrefixed || message.method !== "notifications/resources/updated") return message.text;
  const uri = find(message.text, 0, "params", "uri");
  return uri ? splice(message.text, [renaming(message.text, uri, "resource", names, target)]) : message.text;
}

function renaming(text: string, span: Span, kind: NamedKind, names: Names, target: string): Edit {
  const name = parsedValue(slice(text, span));
  return {
    start: span.start,
    end: span.end,
    text: typeof name === "string" ? JSON.stringify(names.outward(kind, target, name)) : slice(text, span),
  };
}

/** A server's text is looked at, not checked: what is no JSON goes on as it came. */
function parsedValue(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return undefined;
  }
}

function contentUris(text: string, list: Span | undefined): Span[] {
  return elements(text, list?.start ?? text.length).flatMap((one) => contentUri(text, one));
}

/** A link to a resource, or a resource that is embedded. */
function contentUri(text: string, content: Span): Span[] {
  const uri = find(text, content.start, "resource", "uri") ?? find(text, content.start, "uri");
  return uri ? [uri] : [];
}

function urisOf(text: string, list: Span | undefined, path: readonly string[]): Span[] {
  return elements(text, list?.start ?? text.length).flatMap((one) => find(text, one.start, ...path) ?? []);
}
