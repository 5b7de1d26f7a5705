/**
 * Guards over a stream, where a pattern may begin in one event and end in another: of each text (a choice's, a
 * block's, a tool's arguments) the last characters are held back until enough has followed, or it ends. A match
 * longer than what is held can be missed where it crosses events; patterns for secrets and identifiers are shorter.
 * All of it is done in steps: one event may be megabytes of text.
 */
import type { SseEvent } from "../../lib/http/sse.ts";
import { SLICED_BYTES, type Steps } from "../../lib/process/turns.ts";
import type { TextGuard } from "../dialects/llm-call.ts";
import { parseEventInSteps, writeEventInSteps } from "../wire/event-body.ts";
import { isMembers, type Members } from "../wire/json.ts";
import { guardSteps } from "./prompt-rules.ts";

export interface StreamGuard {
  /** The events that may go out now. Throws GuardRejection or EventTooComplex. One event after the other. */
  event(event: SseEvent): Steps<SseEvent[]>;
  /** What was still held. */
  end(): Steps<SseEvent[]>;
}

/** Longer than card numbers, addresses and most keys; about a line of text. */
const HELD_CHARACTERS = 128;

/** Where a delta's text stands in a parsed event, and how to write another in its place. */
export interface Slot {
  readonly key: string;
  readonly text: string;
  /** The same event says that the text is over: nothing is held back any more. */
  readonly final?: boolean;
  put(text: string): Members;
}

type Guarding = (text: string) => Steps<string>;

const enforced =
  (guards: readonly TextGuard[]): Guarding =>
  (text) =>
    guardSteps(text, guards);

interface Channel {
  held: string;
  /** The last event of this text: what is held goes out in its likeness. */
  last: { event: SseEvent; slot: Slot };
}

/** `guard` is what becomes of each text; it may throw GuardRejection. */
export function createStreamGuard(guards: readonly TextGuard[], guard: Guarding = enforced(guards)): StreamGuard {
  const channels = new Map<string, Channel>();

  function* flush(): Steps<SseEvent[]> {
    const out: SseEvent[] = [];
    for (const { held, last } of channels.values()) {
      if (held !== "") out.push({ ...last.event, data: JSON.stringify(last.slot.put(yield* guard(held))) });
    }
    channels.clear();
    return out;
  }

  return {
    *event(event) {
      const isLarge = event.data.length > SLICED_BYTES;
      const body = yield* parseEventInSteps(event.data);
      const slot = body && slotOf(body);
      if (!body || !slot) {
        // Something else than text: what was said before it goes first, and full texts that repeat deltas are guarded too.
        const before = yield* flush();
        if (!body) return [...before, event];
        return [...before, { ...event, data: yield* writeEventInSteps(yield* guardRepeats(body, guard), isLarge) }];
      }
      const before = channels.has(slot.key) ? [] : yield* flush();
      const channel = channels.get(slot.key) ?? { held: "", last: { event, slot } };
      channel.last = { event, slot };
      channels.set(slot.key, channel);
      const text = yield* guard(channel.held + slot.text);
      const cut = slot.final === true ? text.length : Math.max(0, text.length - HELD_CHARACTERS);
      channel.held = text.slice(cut);
      return [...before, { ...event, data: yield* writeEventInSteps(slot.put(text.slice(0, cut)), isLarge) }];
    },
    end: flush,
  };
}

/** All texts are found, then each is looked at, then they are put in their places. */
function* guardRepeats(body: Members, guard: Guarding): Steps<Members> {
  const texts: string[] = [];
  eachRepeat(body, (text) => void texts.push(text));
  if (texts.length === 0) return body;
  for (const [i, text] of texts.entries()) {
    texts[i] = yield* guard(text);
    yield;
  }
  let next = 0;
  return mapRepeats(body, () => texts[next++] ?? "");
}

/** The one text of a delta event, in any dialect. */
export function slotOf(event: Members): Slot | undefined {
  if (typeof event.delta === "string") {
    return {
      key: `${event.type} ${event.item_id} ${event.content_index}`,
      text: event.delta,
      put: (text) => ({ ...event, delta: text }),
    };
  }
  if (isMembers(event.delta)) {
    const { delta } = event;
    const name = ["text", "partial_json", "thinking"].find((one) => typeof delta[one] === "string");
    if (name === undefined) return undefined;
    return {
      key: `${name} ${event.index}`,
      text: String(delta[name]),
      put: (text) => ({ ...event, delta: { ...delta, [name]: text } }),
    };
  }
  return chatSlot(event) ?? geminiSlot(event);
}

function chatSlot(event: Members): Slot | undefined {
  const choice = onlyItem(event.choices);
  const delta = isMembers(choice?.delta) ? choice.delta : undefined;
  if (!choice || !delta) return undefined;
  const name = ["content", "reasoning_content", "refusal"].find(
    (one) => typeof delta[one] === "string" && delta[one] !== "",
  );
  if (name === undefined) return undefined;
  return {
    key: `${name} ${choice.index}`,
    text: String(delta[name]),
    final: typeof choice.finish_reason === "string",
    put: (text) => ({ ...event, choices: [{ ...choice, delta: { ...delta, [name]: text } }] }),
  };
}

function geminiSlot(event: Members): Slot | undefined {
  const candidate = onlyItem(event.candidates);
  const content = isMembers(candidate?.content) ? candidate.content : undefined;
  const part = onlyItem(content?.parts);
  if (!candidate || !content || typeof part?.text !== "string") return undefined;
  return {
    key: `text ${candidate.index} ${part.thought === true}`,
    text: part.text,
    final: typeof candidate.finishReason === "string",
    put: (text) => ({ ...event, candidates: [{ ...candidate, content: { ...content, parts: [{ ...part, text }] } }] }),
  };
}

function onlyItem(value: unknown): Members | undefined {
  return Array.isArray(value) && value.length === 1 && isMembers(value[0]) ? value[0] : undefined;
}

const TEXT_MEMBERS = new Set([
  "text",
  "content",
  "delta",
  "arguments",
  "partial_json",
  "thinking",
  "reasoning_content",
  "refusal",
  "input",
]);

/** Of events that carry text outside a plain delta: whole texts (`…done`, `…completed`), last chunks, several choices. */
export function eachRepeat(value: unknown, found: (text: string) => void, key = ""): void {
  if (typeof value === "string") {
    if (TEXT_MEMBERS.has(key)) found(value);
  } else if (Array.isArray(value)) for (const item of value) eachRepeat(item, found, key);
  else if (isMembers(value)) for (const [name, member] of Object.entries(value)) eachRepeat(member, found, name);
}

/** The same texts in the same order. */
export function mapRepeats(body: Members, map: (text: string) => string): Members {
  return mapAll(body, map) as Members;
}

function mapAll(value: unknown, map: (text: string) => string, key = ""): unknown {
  if (typeof value === "string") return TEXT_MEMBERS.has(key) ? map(value) : value;
  if (Array.isArray(value)) return value.map((item) => mapAll(item, map, key));
  if (!isMembers(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, mapAll(member, map, name)]));
}
