/**
 * Prefixes names with their target, as `<target>_<name>` for tools and prompts and `<target>+<uri>` for most resources.
 * Removing a prefix needs no table, because the configuration rejects a target name that starts with another target's
 * prefix.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Steps } from "../../base/sliced-work.ts";
import { elementsInSteps, find, findInSteps, member, memberOf, slice, splice } from "../../json/json-text.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { type Edit, editAt, type Span } from "../../json/syntax.ts";
import { LISTS, type NamedKind } from "../protocol/access.ts";
import { type ClientRequest, edited, editedRequest, type ServerMessage } from "../protocol/json-rpc.ts";
import type { ListItem } from "../protocol/list-content.ts";
import { NAMED_BY, REFERENCES } from "../protocol/message-rules.ts";

const PART = peerInput("mcp-server/part");

export interface Names {
  readonly targets: readonly string[];
  readonly isPrefixed: boolean;
  outward(kind: NamedKind, target: string, name: string): string;
  /**
   * Splits a client's name into the target and the name at that target. Returns undefined if no target matches or names
   * have no prefix.
   */
  inward(kind: NamedKind, name: string): { readonly target: string; readonly name: string } | undefined;
}

/** MCP hosts recognize UI resources by this scheme, so the prefix follows it. */
const UI_SCHEME = "ui://";

export function createNames(targets: readonly string[], mode: "conditional" | "always" | "never"): Names {
  const isPrefixed = mode === "always" || (mode === "conditional" && targets.length > 1);
  if (!isPrefixed) return { targets, isPrefixed, outward: (_kind, _target, name) => name, inward: () => undefined };
  const strip = (name: string, separator: string): { target: string; name: string } | undefined => {
    const target = targets.find((one) => name.startsWith(one + separator));
    return target === undefined ? undefined : { target, name: name.slice(target.length + separator.length) };
  };
  return {
    targets,
    isPrefixed,
    outward(kind, target, name) {
      if (kind !== "resource") return `${target}_${name}`;
      return name.startsWith(UI_SCHEME) ? `${UI_SCHEME}${target}+${name.slice(UI_SCHEME.length)}` : `${target}+${name}`;
    },
    inward(kind, name) {
      if (kind !== "resource") return strip(name, "_");
      if (!name.startsWith(UI_SCHEME)) return strip(name, "+");
      const found = strip(name.slice(UI_SCHEME.length), "+");
      return found && { target: found.target, name: UI_SCHEME + found.name };
    },
  };
}

export function renamedRequest(request: ClientRequest, name: string): ClientRequest {
  const { params } = request;
  const member = NAMED_BY[request.method];
  const ref = params.ref as { readonly type: string } | undefined;
  const path = member === undefined ? ["ref", REFERENCES[ref?.type ?? ""] ?? ""] : [member];
  const span = find(request.text, 0, "params", ...path);
  if (!span) return request;
  const renamed = member === undefined ? { ref: { ...ref, [path[1] as string]: name } } : { [member]: name };
  return editedRequest(request, [editAt(span, JSON.stringify(name))], { ...params, ...renamed });
}

/** A tool may refer to its UI resource with one of these members of `_meta`. */
const UI_RESOURCES = [["ui", "resourceUri"], ["ui/resourceUri"]];

export function renamedItem(text: string, item: ListItem, method: string, names: Names, target: string): string {
  const list = LISTS[method];
  if (!list || item.nameEnd === 0 || !names.isPrefixed) return slice(text, item);
  const edits = [renaming(text, { start: item.nameStart, end: item.nameEnd }, list.kind, names, target)];
  const meta = method === "tools/list" ? member(text, item.start, "_meta") : undefined;
  if (meta)
    for (const path of UI_RESOURCES) {
      const uri = find(text, meta.start, ...path);
      if (uri) edits.push(renaming(text, uri, "resource", names, target));
    }
  return splice(
    slice(text, item),
    edits.map((edit) => ({ ...edit, start: edit.start - item.start, end: edit.end - item.start })),
  );
}

const LINKING = lookupTable({ "resources/read": "contents", "tools/call": "content", "prompts/get": "messages" });

/** Prefixes resource URIs in a result, so that the client can read them. */
export function* renamedResult(
  message: ServerMessage,
  method: string,
  names: Names,
  target: string,
): Steps<ServerMessage> {
  if (!names.isPrefixed || message.kind !== "result") return message;
  const { text } = message;
  const member = LINKING[method];
  const list = member && (yield* findInSteps(text, 0, "result", member));
  const spans: Span[] = [];
  for (const item of list ? yield* elementsInSteps(text, list.start) : []) {
    const content = method === "prompts/get" ? yield* memberOf(text, item, "content") : item;
    const isList = content !== undefined && text[content.start] === "[";
    for (const part of isList ? yield* elementsInSteps(text, content.start) : content ? [content] : [])
      spans.push(...(yield* uriIn(text, part, method !== "resources/read")));
  }
  return spans.length === 0
    ? message
    : edited(
        message,
        spans.map((span) => renaming(text, span, "resource", names, target)),
      );
}

export function renamedNotification(message: ServerMessage, names: Names, target: string): string {
  if (!names.isPrefixed || message.method !== "notifications/resources/updated") return message.text;
  const uri = find(message.text, 0, "params", "uri");
  return uri ? splice(message.text, [renaming(message.text, uri, "resource", names, target)]) : message.text;
}

function renaming(text: string, span: Span, kind: NamedKind, names: Names, target: string): Edit {
  const name = tryReadJson(PART, slice(text, span));
  return {
    start: span.start,
    end: span.end,
    text: typeof name === "string" ? JSON.stringify(names.outward(kind, target, name)) : slice(text, span),
  };
}

function* uriIn(text: string, content: Span, mayEmbed: boolean): Steps<Span[]> {
  yield;
  const resource = mayEmbed ? yield* memberOf(text, content, "resource") : undefined;
  const uri = (resource && (yield* memberOf(text, resource, "uri"))) ?? (yield* memberOf(text, content, "uri"));
  return uri ? [uri] : [];
}
