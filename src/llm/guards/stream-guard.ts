/**
 * Guards a stream in which a match may start in one event and end in another. Each channel, such as the text of a
 * choice, holds back its last characters until more text of the same channel follows or the channel ends.
 */
import { ExpectedError } from "../../base/errors.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { SseEvent } from "../../http/sse.ts";
import { isMembers, type Members } from "../../json/json.ts";
import type { TextGuard } from "../request/llm-call.ts";
import { parseEventInSteps, writeEventInSteps } from "../usage/stream-events.ts";
import { GuardedText, type GuardFound, guardParts, spreadText } from "./guarded-text.ts";
import { isStructural, labelOf, mapTexts, readPath, type TextPlace } from "./text-places.ts";

export interface StreamGuard {
  /**
   * Returns the events to send now. May throw `GuardRejection`, `EventTooComplex`, or `TooManyChannels`. Calls must not
   * overlap.
   */
  event(event: SseEvent): Steps<SseEvent[]>;
  end(): Steps<SseEvent[]>;
}

const MAX_CHANNELS = 1_024;
const END_OF_STREAM = "[DONE]";

export class TooManyChannels extends ExpectedError {
  constructor() {
    super(`the stream has more than ${MAX_CHANNELS} choices, content parts and tool calls`);
    this.name = "TooManyChannels";
  }
}

interface Channel {
  readonly text: GuardedText;
  /** The channel's last event is the template for an event with held text. */
  last: { readonly event: SseEvent; readonly template: ChannelTemplate } | undefined;
}

/** If `found` is set, the guards run in shadow mode and only report matches. */
export function createStreamGuard(guards: readonly TextGuard[], found?: GuardFound): StreamGuard {
  const channels = new Map<string, Channel>();

  function channelOf(key: string): Channel {
    let channel = channels.get(key);
    if (channel === undefined) {
      if (channels.size >= MAX_CHANNELS) throw new TooManyChannels();
      channel = { text: new GuardedText(guards, found), last: undefined };
      channels.set(key, channel);
    }
    return channel;
  }

  function* release(isEnded: (key: string) => boolean): Steps<SseEvent[]> {
    const out: SseEvent[] = [];
    for (const [key, { text, last }] of channels) {
      if (!text.isHolding || last === undefined || !isEnded(key)) continue;
      const held = yield* text.push("", true);
      out.push(last.template.event({ ...last.event, data: "" }, held));
    }
    return out;
  }

  function* guarded(event: SseEvent, places: readonly StreamPlace[], isEnded: (key: string) => boolean) {
    const texts: string[] = [];
    const runs = new Map<string, number[]>();
    const lastOf = new Map(places.map(({ channel }, i) => [channel, i]));
    for (const [i, { text, channel: key, isImmediate, run, template }] of places.entries()) {
      if (key === undefined) {
        texts.push(text);
        const parts = runs.get(run);
        if (parts === undefined) runs.set(run, [i]);
        else parts.push(i);
        continue;
      }
      if (text === "" && !channels.has(key)) {
        texts.push("");
        continue;
      }
      const channel = channelOf(key);
      texts.push(yield* channel.text.push(text, isImmediate || (lastOf.get(key) === i && isEnded(key))));
      if (channel.text.isHolding && template && text !== "")
        channel.last = { event: { ...event, data: "" }, template: template() };
      yield;
    }
    for (const parts of runs.values()) {
      const checked = yield* guardParts(
        parts.map((i) => texts[i] as string),
        guards,
        found,
      );
      for (const [at, i] of parts.entries()) texts[i] = checked[at] as string;
    }
    return texts;
  }

  return {
    *event(event) {
      const parsed = yield* parseEventInSteps(event.data);
      if (parsed === undefined) {
        if (event.data === END_OF_STREAM) return [...(yield* release(() => true)), event];
        return [{ ...event, data: yield* channelOf("").text.push(event.data, true) }];
      }
      const { body, places } = readPlaces(parsed);
      const isEnded = endedChannels(parsed);
      const texts = yield* guarded(event, places, isEnded ?? (() => false));
      // Most events end no channel, and a search of all channels for each event would be quadratic.
      const before = isEnded === undefined ? [] : yield* release(isEnded);
      const isChanged = body !== parsed || places.some(({ text }, i) => texts[i] !== text);
      if (!isChanged) return [...before, event];
      const shown: Members = withPlaces(body, texts);
      const data = yield* writeEventInSteps(shown, event.data.length > SLICED_BYTES);
      return [...before, { ...event, data }];
    },
    end: () => release(() => true),
  };
}

interface StreamPlace {
  readonly text: string;
  readonly channel: string | undefined;
  /** True if the text must be sent with its own event, so it cannot be held back. */
  readonly isImmediate: boolean;
  /** Strings with the same value are parts of one text. */
  readonly run: string;
  template?(): ChannelTemplate;
}

/** Returns the body without withheld members. */
function readPlaces(body: Members): { readonly body: Members; readonly places: readonly StreamPlace[] } {
  const places: StreamPlace[] = [];
  const shown = mapTexts(body, OPTIONS, (text, place) => {
    places.push(placeOf(body, text, place));
    return text;
  });
  return { body: shown, places };
}

/** `texts` must have the same length and order as the places of the event. */
function withPlaces(body: Members, texts: readonly string[]): Members {
  let next = 0;
  return mapTexts(body, OPTIONS, (text) => texts[next++] ?? text);
}

/** Returns a predicate for the channels that end with the event, or undefined if no channel ends. */
function endedChannels(body: Members): ((channel: string) => boolean) | undefined {
  const { type } = body;
  if (typeof type === "string") return endedByType(type, body);
  const prefixes: string[] = [];
  for (const [list, reason] of FINISHES)
    for (const [i, item] of asList(body[list]).entries())
      if (isMembers(item) && typeof item[reason] === "string") prefixes.push(`.${list}.${labelOf(item, i)}.`);
  return prefixes.length === 0 ? undefined : (channel) => prefixes.some((prefix) => channel.startsWith(prefix));
}

interface ChannelTemplate {
  event(event: SseEvent, text: string): SseEvent;
}

const OPTIONS = { direction: "response" } as const;
const FINISHES = [
  ["choices", "finish_reason"],
  ["candidates", "finishReason"],
] as const;
/** Longer strings are not copied into a template. */
const MAX_REPEATED_CHARACTERS = 512;

function placeOf(body: Members, text: string, place: TextPlace): StreamPlace {
  const { path, run, name, holder, isFree } = place;
  const channel = channelOf(body, place);
  if (channel === undefined) return { text, channel, isImmediate: false, run };
  // Held text is sent in a later event, which would split a tool name or a value inside a JSON object, or repeat
  // `content_block_start`.
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
      // Citations arrive whole, and `message_delta` carries no text.
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

/** The index is preferred, because some servers give each event a different `item_id`. */
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

/** Copies the path to the text and the identifiers along it. */
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

export interface StreamTexts {
  readonly texts: readonly string[];
  /** `texts` must have the same length and order as the original texts. */
  replaced(texts: readonly string[]): Steps<SseEvent[]>;
}

export function* streamTexts(events: readonly SseEvent[]): Steps<StreamTexts> {
  const runs: string[][] = [];
  const known = new Map<string, number>();
  /** Maps each string to the index of its text, in stream order. */
  const order: number[] = [];
  const add = (key: string, text: string): void => {
    let index = known.get(key);
    if (index === undefined) {
      index = runs.length;
      known.set(key, index);
      runs.push([]);
    }
    runs[index]?.push(text);
    order.push(index);
  };
  for (const [i, { data }] of events.entries()) {
    const parsed = yield* parseEventInSteps(data);
    if (parsed) for (const { text, channel, run } of readPlaces(parsed).places) add(channel ?? `${i} ${run}`, text);
    else if (data !== END_OF_STREAM) add("", data);
    yield;
  }
  return {
    texts: runs.map((parts) => parts.join("")),
    *replaced(texts) {
      const spread = runs.map((parts, i) => spreadText(parts, texts[i] ?? ""));
      const taken = runs.map(() => 0);
      let at = 0;
      const next = (): string => {
        const run = order[at++] ?? 0;
        const part = taken[run] ?? 0;
        taken[run] = part + 1;
        return spread[run]?.[part] ?? "";
      };
      const out: SseEvent[] = [];
      for (const event of events) {
        const parsed = yield* parseEventInSteps(event.data);
        if (parsed) {
          const { body, places } = readPlaces(parsed);
          const shown = withPlaces(body, places.map(next));
          const data = yield* writeEventInSteps(shown, event.data.length > SLICED_BYTES);
          out.push({ ...event, data });
        } else out.push(event.data === END_OF_STREAM ? event : { ...event, data: next() });
        yield;
      }
      return out;
    },
  };
}
