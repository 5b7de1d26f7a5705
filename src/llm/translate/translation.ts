/**
 * Between the dialect of a client and that of a provider: pure functions over parsed JSON. What cannot be said in
 * the other dialect is refused with the name of the member; nothing is dropped silently.
 */

import type { Provider } from "../dialects/provider.ts";
import type { Members } from "../wire/json.ts";

export interface TranslationContext {
  /** The provider's name of the model. */
  readonly model: string;
  readonly stream: boolean;
  readonly maxTokensMember: Provider["maxTokensMember"];
  /** A random id for answers that come without one, and for tool calls. */
  newId(): string;
  readonly createdSeconds: number;
  /** The client asked for usage in its stream. */
  readonly includeUsage: boolean;
}

export interface Translation {
  request(body: Members, context: TranslationContext): Members;
  response(body: Members, context: TranslationContext): Members;
  stream(context: TranslationContext): StreamTranslation;
}

/** One stream, event by event. */
export interface StreamTranslation {
  /** `type` is the name of the event where the dialect has one. */
  event(type: string, data: Members): readonly OutEvent[];
  /** The provider's stream ended as it should. */
  end(): readonly OutEvent[];
}

export interface OutEvent {
  readonly event?: string;
  readonly data: Members | "[DONE]";
}

/** The request cannot be said in the provider's dialect: a 400 that names the member. */
export class TranslationError extends Error {
  readonly param: string;

  constructor(param: string, message: string) {
    super(message);
    this.name = "TranslationError";
    this.param = param;
  }
}

/** What the provider said is no answer: an error inside its stream, or something that cannot be one. */
export class UpstreamAnswerError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = "UpstreamAnswerError";
    this.status = status;
  }
}

/** First from the client's dialect into a middle one, then from there into the provider's. */
export function chain(outer: Translation, inner: Translation): Translation {
  return {
    request: (body, context) => inner.request(outer.request(body, context), context),
    response: (body, context) => outer.response(inner.response(body, context), context),
    stream(context) {
      // The middle stream must carry its usage, whether the client asked for it or not.
      const middle = inner.stream({ ...context, includeUsage: true });
      const client = outer.stream(context);
      const pass = (events: readonly OutEvent[]): OutEvent[] =>
        events.flatMap(({ event, data }) => (data === "[DONE]" ? [] : client.event(event ?? "", data)));
      return {
        event: (type, data) => pass(middle.event(type, data)),
        end: () => [...pass(middle.end()), ...client.end()],
      };
    },
  };
}
