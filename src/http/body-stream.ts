/**
 * A request body that is still arriving, as its readers see it: what they need of Node's Readable and no more, so that
 * the listener can hand over bytes without one. `data` any number of times, then `end`; `close` if it broke off.
 * Reading begins with the first `data` listener, in a later turn.
 */

/** Of `data` (a chunk), `error` (an error), `end` or `close` (nothing). */
export type BodyListener = (value: Buffer & Error) => void;

export interface BodyStream {
  on(event: string, listener: BodyListener): unknown;
  once(event: string, listener: BodyListener): unknown;
  off(event: string, listener: BodyListener): unknown;
  emit(event: string | symbol, ...values: unknown[]): boolean;
  pause(): unknown;
  resume(): unknown;
  readonly readableEnded: boolean;
  readonly destroyed: boolean;
}

/** The body of a client's request. */
export interface RequestBodyStream extends BodyStream {
  /** Tells the first piece, which stays in the stream, or undefined if the body is empty; once, in a later turn. */
  peek(seen: (first: Buffer | undefined) => void): void;
}
