/**
 * Sends one request on an HTTP/2 connection to a server and receives its response. The request waits for the
 * connection. If the server then chooses HTTP/1.1, another pool sends the request.
 */
import { type ClientHttp2Session, type ClientHttp2Stream, constants } from "node:http2";
import { contain } from "../../base/errors.ts";
import type { BodyStream } from "../body.ts";
import { type Carrier, HttpAttempt } from "../http-attempt.ts";
import {
  type HealthObserver,
  type HttpCall,
  HttpClientError,
  type HttpClientErrorKind,
  type HttpPool,
  type HttpResponseReceiver,
  type OutgoingRequest,
} from "../http-client.ts";
import { FrameReader } from "./frame-reader.ts";
import { headerList, plainPairs, requestFields } from "./request-fields.ts";

const { NGHTTP2_CANCEL, NGHTTP2_FLAG_END_STREAM, NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants;

export class StreamCall implements Carrier {
  readonly attempt: HttpAttempt;
  readonly #request: OutgoingRequest;
  readonly #scheme: "http" | "https";
  readonly #done: (call: StreamCall) => void;
  #stream: ClientHttp2Stream | undefined = undefined;
  #frames: FrameReader | undefined = undefined;
  #other: HttpCall | undefined = undefined;
  #hasHead = false;
  #hasEnded = false;
  #isDone = false;
  #trailers: string[] = [];
  #error: Error | undefined = undefined;

  /** `done` is called once, when the stream is closed or was never opened. */
  constructor(
    request: OutgoingRequest,
    receiver: HttpResponseReceiver,
    health: HealthObserver | undefined,
    scheme: "http" | "https",
    done: (call: StreamCall) => void,
  ) {
    this.#request = request;
    this.#scheme = scheme;
    this.#done = done;
    this.attempt = new HttpAttempt(this, receiver, health);
  }

  /** `isKept` is true if the connection has served a request before, so that it may end independently of this one. */
  start(session: ClientHttp2Session, isKept: boolean): void {
    if (this.attempt.isOver) return;
    const { body } = this.#request;
    let stream: ClientHttp2Stream;
    try {
      // A truncated body must not look complete, so only trailers, possibly empty, end it.
      stream = session.request(requestFields(this.#request, this.#scheme), {
        endStream: body === undefined,
        waitForTrailers: body !== undefined && !Buffer.isBuffer(body),
      });
    } catch (error) {
      this.fail("request", (error as Error).message, error as Error);
      return;
    }
    this.#stream = stream;
    const giveUp = (): void => void setImmediate(() => stream.destroy());
    stream.on("response", (fields, flags: number, raw?: readonly string[]) =>
      contain(() => this.#head(Number(fields[":status"]), flags, raw ?? rawOf(fields)), giveUp),
    );
    stream.on("trailers", (fields, _flags: number, raw?: readonly string[]) => {
      this.#trailers = plainPairs(raw ?? rawOf(fields));
    });
    this.#frames = new FrameReader(stream, {
      data: (chunk) => {
        let mayContinue = true;
        contain(() => {
          mayContinue = this.attempt.data(chunk);
        }, giveUp);
        return mayContinue;
      },
    });
    stream.on("end", () => contain(() => this.#end(), giveUp));
    stream.on("error", (error: Error) => {
      this.#error = error;
    });
    stream.on("close", () => contain(() => this.#closed(isKept), giveUp));
    if (Buffer.isBuffer(body)) stream.end(body);
    else if (body !== undefined) pump(body, stream, (error) => this.fail("request", error.message, error));
  }

  divert(pool: HttpPool): void {
    if (this.attempt.isOver) return;
    this.#finish();
    this.#other = pool.send(this.#request, this.attempt);
  }

  fail(kind: HttpClientErrorKind, message: string, cause?: Error): void {
    this.#stream?.close(NGHTTP2_CANCEL);
    this.attempt.fail(new HttpClientError(kind, message, cause));
    if (this.#stream === undefined) this.#finish();
  }

  stop(): void {
    if (this.#other !== undefined) this.#other.abort();
    else if (this.#stream !== undefined) this.#stream.close(NGHTTP2_CANCEL);
    else this.#finish();
  }

  proceed(): void {
    if (this.#other !== undefined) this.#other.resume();
    else this.#frames?.resume();
  }

  #head(status: number, flags: number, raw: readonly string[]): void {
    this.#hasHead = true;
    this.attempt.head(status, headerList(raw));
    // Reports the end together with the head, so that a response without a body can be forwarded in one step.
    if ((flags & NGHTTP2_FLAG_END_STREAM) !== 0) this.#end();
  }

  #end(): void {
    const { rstCode = NGHTTP2_NO_ERROR } = this.#stream ?? {};
    if (!this.#hasHead || this.#hasEnded || rstCode !== NGHTTP2_NO_ERROR) return;
    this.#hasEnded = true;
    this.attempt.end(this.#trailers);
  }

  #closed(isKept: boolean): void {
    const { rstCode } = this.#stream ?? {};
    this.#frames?.flush();
    this.#finish();
    // The request was rejected before it was processed, or lost with a reused connection, so it may be sent again.
    const isStale = !this.#hasHead && (rstCode === NGHTTP2_REFUSED_STREAM || (isKept && this.#error === undefined));
    const reason = this.#error?.message ?? "the stream was closed before the response was complete";
    if (!this.#hasEnded) this.attempt.fail(new HttpClientError(isStale ? "stale" : "response", reason, this.#error));
  }

  #finish(): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.#done(this);
  }
}

function pump(body: BodyStream, stream: ClientHttp2Stream, failed: (error: Error) => void): void {
  const onData = (chunk: Buffer): void => {
    if (chunk.length === 0 || stream.write(chunk)) return;
    body.pause();
    body.queued?.(stream.writableLength);
  };
  const onEnd = (): void => {
    stop();
    stream.on("wantTrailers", () => stream.sendTrailers({}));
    stream.end();
  };
  const onError = (error: Error): void => {
    stop();
    failed(error);
  };
  const onClose = (): void => onError(new Error("the client's connection closed before its body was complete"));
  let isStopped = false;
  const stop = (): void => {
    isStopped = true;
    body.off("data", onData);
    body.off("end", onEnd);
    body.off("error", onError);
    body.off("close", onClose);
  };
  stream.on("drain", () => {
    body.queued?.(0);
    if (!isStopped) body.resume();
  });
  // A stream that was ended does not drain.
  stream.on("finish", () => body.queued?.(0));
  stream.once("close", () => {
    stop();
    // Discards the rest, so that the client does not wait.
    if (!body.readableEnded && !body.destroyed) body.resume();
  });
  body.on("data", onData);
  body.on("end", onEnd);
  body.on("error", onError);
  body.on("close", onClose);
  if (body.readableEnded) process.nextTick(onEnd);
  else if (body.destroyed) process.nextTick(onClose);
}

function rawOf(fields: object): string[] {
  return Object.entries(fields).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).flatMap((one) => [name, String(one)]),
  );
}
