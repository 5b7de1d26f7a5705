/**
 * Guards over a stream, where a match may begin in one event and end in another. Each channel (`stream-places.ts`) has its
 * own text: the gateway holds back its last characters until more of the same channel follows or the channel ends. Events of
 * other channels, pings, usage and empty deltas release nothing. Strings that are no pieces are guarded where they stand.
 *
 * Held text of a channel goes out before the event that ends the channel. All of it is done in steps, because one event may
 * be megabytes of text.
 */

import { ExpectedError } from "../../base/expected-error.ts";
import { SLICED_BYTES, type Steps } from "../../base/turns.ts";
import type { SseEvent } from "../../http/sse.ts";
import type { Members } from "../../json/json.ts";
import { parseEventInSteps, writeEventInSteps } from "../encoding/event-body.ts";
import type { TextGuard } from "../request/llm-call.ts";
import { GuardedText, type GuardFound, guardParts } from "./guarded-text.ts";
import { type ChannelTemplate, endedChannels, readPlaces, type StreamPlace, withPlaces } from "./stream-places.ts";

export interface StreamGuard {
  /** The events that may go out now. Throws GuardRejection, EventTooComplex or TooManyChannels. One event after the other. */
  event(event: SseEvent): Steps<SseEvent[]>;
  /** What was still held. */
  end(): Steps<SseEvent[]>;
}

/** Each retains some characters. The most choices that a provider makes are 128, with a few texts each. */
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
  /** For what is held: the last event of the channel. */
  last: { readonly event: SseEvent; readonly template: ChannelTemplate } | undefined;
}

/** `found`: the guards are in shadow mode, and what they would do is noted. */
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
      const isEnded = endedChannels(parsed) ?? (() => false);
      const texts = yield* guarded(event, places, isEnded);
      const before = yield* release(isEnded);
      const isChanged = body !== parsed || places.some(({ text }, i) => texts[i] !== text);
      if (!isChanged) return [...before, event];
      const shown: Members = withPlaces(body, texts);
      const data = yield* writeEventInSteps(shown, event.data.length > SLICED_BYTES);
      return [...before, { ...event, data }];
    },
    end: () => release(() => true),
  };
}
