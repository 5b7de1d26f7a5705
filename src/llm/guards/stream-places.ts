/**
 * The texts of one stream event, and which of them are pieces of a longer text. A client appends the pieces of a channel
 * (a choice's content, a block's thinking, the arguments of a tool call) to each other, whatever arrives between them.
 */
import type { SseEvent } from "../../http/sse.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { isStructural, labelOf, mapTexts, readPath, type TextPlace } from "./text-places.ts";

/** A string of an event. */
export interface StreamPlace {
  readonly text: string;
  /** The channel that the string is a piece of; undefined if the string is whole. */
  readonly channel: string | undefined;
  /** Clients use the piece at once, so it cannot be held back. */
  readonly isImmediate: boolean;
  /** Strings with the same value are parts of one text. */
  readonly run: string;
  /** An event that carries only more text of the channel. */
  template?(): ChannelTemplate;
}

/** What is withheld is gone from the body. */
export function readPlaces(body: Members): { readonly body: Members; readonly places: readonly StreamPlace[] } {
  const places: StreamPlace[] = [];
  const shown = mapTexts(body, OPTIONS, (text, place) => {
    places.push(placeOf(body, text, place));
    return text;
  });
  return { body: shown, places };
}

/** The event with other texts, as many and in the same order. */
export function withPlaces(body: Members, texts: readonly string[]): Members {
  let next = 0;
  return mapTexts(body, OPTIONS, (text) => texts[next++] ?? text);
}

/** Which channels end with the event; undefined if none does. */
export function endedChannels(body: Members): ((channel: string) => boolean) | undefined {
  const { type } = body;
  if (typeof type === "string") return endedByType(type, body);
  const prefixes: string[] = [];
  for (const [list, reason] of FINISHES)
    for (const [i, item] of asList(body[list]).entries())
      if (isMembers(item) && typeof item[reason] === "string") prefixes.push(`.${list}.${labelOf(item, i)}.`);
  return prefixes.length === 0 ? undefined : (channel) => prefixes.some((prefix) => channel.startsWith(prefix));
}

/** Makes events that carry the rest of a channel. It retains a few short strings of the event that it was made of. */
export interface ChannelTemplate {
  event(event: SseEvent, text: string): SseEvent;
}

const OPTIONS = { direction: "response" } as const;
const FINISHES = [
  ["choices", "finish_reason"],
  ["candidates", "finishReason"],
] as const;
/** Longer strings are not repeated. */
const MAX_REPEATED_CHARACTERS = 512;

function placeOf(body: Members, text: string, place: TextPlace): StreamPlace {
  const { path, run, name, holder, isFree } = place;
  const channel = channelOf(body, place);
  if (channel === undefined) return { text, channel, isImmediate: false, run };
  // Names select a tool, and arbitrary JSON has a form to keep.
  const isImmediate = isFree || name === "name" || holder.jsonPath !== undefined || body.type === "content_block_start";
  return { text, channel, isImmediate, run, template: () => templateOf(body, readPath(path)) };
}

function channelOf(body: Members, { path, name, holder }: TextPlace): string | undefined {
  const [first = "", second = "", third = "", fourth = "", , last = ""] = readPath(path);
  switch (first) {
    case "choices":
      return third === "delta" || (third === "text" && fourth === "") ? path : undefined;
    case "candidates":
      if (third !== "content" || fourth !== "parts") return undefined;
      if (last === "text") return `.candidates.${second}.text.${holder.thought === true}`;
      return holder.jsonPath === undefined || name === "jsonPath"
        ? undefined
        : `.candidates.${second}.${String(holder.jsonPath)}`;
    case "delta":
      if (second === "") return responseChannel(body, String(body.type));
      // A citation is whole, and the last words about a message are no text.
      if (second === "citation" || body.type === "message_delta") return undefined;
      return `.block.${blockOf(body)}.${path}`;
    case "content_block":
      return second === "text" || second === "thinking" ? `.block.${blockOf(body)}..delta.${second}` : undefined;
    default:
      return undefined;
  }
}

function blockOf(body: Members): string {
  return String(body.index ?? body.contentBlockIndex ?? body.output_index ?? "");
}

/** Of the Responses API. Some servers give each event another `item_id`, so the index counts if there is one. */
function responseChannel(body: Members, type: string): string {
  const { output_index: output = body.item_id, content_index: content, summary_index: summary } = body;
  return `.output.${String(output)}.${String(content)}.${String(summary)}.${type}`;
}

function endedByType(type: string, body: Members): ((channel: string) => boolean) | undefined {
  switch (type) {
    case "content_block_stop":
      return (channel) => channel.startsWith(`.block.${blockOf(body)}.`);
    case "message_delta":
    case "message_stop":
    case "response.completed":
    case "response.incomplete":
    case "response.failed":
    case "error":
      return () => true;
    case "response.output_item.done": {
      const { output_index: output = isMembers(body.item) ? body.item.id : undefined } = body;
      return (channel) => channel.startsWith(`.output.${String(output)}.`);
    }
    default:
  }
  if (!type.endsWith(".done")) return undefined;
  if (type.endsWith("_part.done")) {
    const prefix = responseChannel(body, "");
    return (channel) => channel.startsWith(prefix);
  }
  const ended = responseChannel(body, `${type.slice(0, -".done".length)}.delta`);
  return (channel) => channel === ended;
}

/** Everything on the way to the text, with what identifies it; nothing that a client would append or count twice. */
function templateOf(body: Members, path: readonly string[]): ChannelTemplate {
  const top: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(body)) if (isRepeated(name, value)) top[name] = value;
  const shape = along(body, path, "");
  return {
    event: (event, text) => ({
      ...event,
      id: undefined,
      data: JSON.stringify({ ...top, ...along(shape, path, text) }),
    }),
  };
}

function along(value: Members, [name = "", ...rest]: readonly string[], text: string): Members {
  const member = value[name];
  if (rest.length === 0) return { ...identityOf(value), [name]: text };
  if (Array.isArray(member)) {
    const [label = "", ...inner] = rest;
    const item: unknown = member.length === 1 ? member[0] : member.find((one, i) => String(labelOf(one, i)) === label);
    return { ...identityOf(value), [name]: [isMembers(item) ? along(item, inner, text) : text] };
  }
  return { ...identityOf(value), [name]: isMembers(member) ? along(member, rest, text) : text };
}

function identityOf(value: Members): Members {
  const identity: Record<string, unknown> = {};
  for (const name of ["index", "type", "thought"]) if (isRepeated(name, value[name])) identity[name] = value[name];
  if ("finish_reason" in value) identity.finish_reason = null;
  return identity;
}

function isRepeated(name: string, value: unknown): boolean {
  if (typeof value === "string") return value.length <= MAX_REPEATED_CHARACTERS && isStructural(name, value);
  return typeof value === "number" || typeof value === "boolean";
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
