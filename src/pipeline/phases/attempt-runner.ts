/**
 * Runs the attempts of a request: calls a target, and moves on to the next one if the attempt failed. A backend's own
 * targets are tried first, then the backends of the route. The runner owns the rule for what may be repeated,
 * and `HeldRequest` holds the request from which each attempt starts.
 */
import type { Duplex } from "node:stream";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { PreparedCall } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, forkRequest, type GatewayRequest } from "../../core/exchange.ts";
import type { RetrySettings, Settings } from "../../core/policy.ts";
import { noMemoryFor, readBody } from "../../core/read-body.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { AttemptFailure, Targets } from "../../core/targets.ts";
import type { WeightedBackend } from "../../core/topology.ts";
import { type BodyMemory, peekFirst, type RequestBodyStream, readExactly } from "../../http/body.ts";
import type { HeaderList } from "../../http/headers.ts";
import { HttpClientError } from "../../http/http-client.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import { BackendCall, type CallDelivery, type CallOwner, reportRetry } from "./backend-call.ts";

const BODY = peerInput("client/request-body");

/** A body of known length up to this size is read before the backend is called, so that it can be sent again. */
const SMALL_BODY_BYTES = 64 * 1024;

/** `isDone` is true if the client disconnected or received a response in the meantime. */
export interface BodyWaiter {
  readonly isDone: boolean;
  fail(error: unknown): void;
}

export class HeldRequest {
  readonly #exchange: Exchange;
  readonly #sink: Pick<ClientSink, "askForBody">;
  readonly #waiter: BodyWaiter;
  #origin: GatewayRequest | undefined;

  constructor(exchange: Exchange, sink: Pick<ClientSink, "askForBody">, waiter: BodyWaiter) {
    this.#exchange = exchange;
    this.#sink = sink;
    this.#waiter = waiter;
  }

  /** Sets the request from which every attempt starts. */
  remember(): void {
    this.#origin = this.#exchange.request;
  }

  /** Gives the next attempt its own copy, because policies of a backend may change it. */
  restore(): void {
    if (this.#origin) this.#exchange.request = forkRequest(this.#origin);
  }

  /** Buffers a small body, and leaves larger bodies and bodies of unknown length unchanged. */
  holdSmall(next: () => void): void {
    const { body } = this.#exchange.request;
    if (body.kind === "none") next();
    else if (body.kind === "bytes") {
      if (this.#exchange.holdSmallBody(body.bytes.length)) next();
      else this.#reserve(body.bytes.length, (memory) => this.#resume(undefined, () => this.#finish(memory, next)));
    } else if (body.length === undefined || body.length > SMALL_BODY_BYTES) next();
    else this.#reserve(body.length, (memory) => this.#readSmall(body.stream, body.length ?? 0, memory, next));
  }

  /** Calls `granted` when memory for a body of this length is available, or fails. */
  #reserve(length: number, granted: (memory: BodyMemory | undefined) => void): void {
    const memory = this.#exchange.bodyReservation();
    if (memory === undefined) granted(undefined);
    else
      memory.reserve(
        length,
        () => granted(memory),
        (error) => {
          if (!this.#waiter.isDone) this.#waiter.fail(noMemoryFor(error));
        },
      );
  }

  #readSmall(stream: RequestBodyStream, length: number, memory: BodyMemory | undefined, next: () => void): void {
    if (this.#waiter.isDone) return;
    this.#sink.askForBody();
    readExactly(stream, length, (error, bytes) => {
      this.#resume(error, () => {
        this.#keep(bytes);
        this.#finish(memory, next);
      });
    });
  }

  #finish(memory: BodyMemory | undefined, next: () => void): void {
    memory?.finish();
    next();
  }

  /** Reads any body up to a limit. If it is larger, the method throws or fails with a 413. */
  hold(maxBytes: number, next: () => void): void {
    const { body } = this.#exchange.request;
    if (body.kind !== "stream") {
      next();
      return;
    }
    if (body.length !== undefined && body.length > maxBytes) throw new GatewayError("body_too_large");
    this.#sink.askForBody();
    readBody(this.#exchange, body, BODY.upTo(maxBytes))
      .then((bytes) => {
        this.#keep(bytes);
        next();
      })
      .catch((error) => {
        if (!this.#waiter.isDone) this.#waiter.fail(error);
      });
  }

  /**
   * Passes the first chunk of the body to `next` without consuming it. The chunk is undefined if the body is empty.
   */
  peek(next: (first: Buffer | undefined) => void): void {
    const { body } = this.#exchange.request;
    if (body.kind !== "stream") {
      next(body.kind === "bytes" ? body.bytes : undefined);
      return;
    }
    this.#sink.askForBody();
    peekFirst(body.stream, (error, first) => {
      this.#resume(error, () => {
        if (first === undefined) this.#keep(Buffer.alloc(0));
        next(first);
      });
    });
  }

  #resume(error: Error | undefined, next: () => void): void {
    if (this.#waiter.isDone) return;
    try {
      if (error) throw error;
      next();
    } catch (thrown) {
      this.#waiter.fail(thrown);
    }
  }

  #keep(bytes: Buffer): void {
    const body = { kind: "bytes", bytes } as const;
    this.#exchange.request.body = body;
    if (this.#origin) this.#origin.body = body;
  }
}

/** Receives the outcomes that end the attempts of a request. */
export interface AttemptOwner {
  readonly clock: Clock;
  readonly redaction: Redaction;
  /** Chooses a backend of the route, runs its policies, and calls it. */
  callNext(): void;
  fail(error: GatewayError): void;
  broke(error: unknown): void;
  upgraded(status: number, headers: HeaderList, socket: Duplex): void;
  isUploading(): boolean;
}

interface CallFailure extends AttemptFailure {
  /** Undefined if the backend responded, and the retry policy counts the response as a failure. */
  readonly error: GatewayError | undefined;
}

/**
 * Without a retry policy, one retry is allowed if the backend had closed a reused connection, or if connecting failed
 * and the backend has other endpoints.
 */
const STALE_RETRY: RetrySettings = { attempts: 1, backoffMs: 0, codes: new Set() };

/** Lists the idempotent methods of RFC 9110 section 9.2.2, without TRACE, which the gateway rejects. */
const IDEMPOTENT = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

/**
 * Returns whether a request may be sent again. A streamed body that was taken cannot be. A request that is not
 * idempotent is repeated only if nothing was sent or the retry policy lists the response.
 */
function mayRepeat({ method, body }: GatewayRequest, error: GatewayError | undefined): boolean {
  if (body.kind === "stream" && body.taken) return false;
  return IDEMPOTENT.has(method) || error === undefined || isUnconnected(error);
}

export class AttemptRunner implements CallOwner, Targets<CallFailure> {
  readonly exchange: Exchange;
  readonly delivery: CallDelivery;
  settings: Settings = {};
  readonly #owner: AttemptOwner;
  #started = 0;
  #call: BackendCall | undefined = undefined;

  constructor(owner: AttemptOwner, exchange: Exchange, delivery: CallDelivery) {
    this.#owner = owner;
    this.exchange = exchange;
    this.delivery = delivery;
  }

  /** Starts an attempt with a backend of the route. */
  call({ backend, policies: { settings } }: WeightedBackend, prepared: PreparedCall): void {
    this.settings = settings;
    this.#started += 1;
    this.#call = new BackendCall(this, backend.defaultTimeoutMs);
    this.#call.start(prepared);
  }

  next<Failure extends AttemptFailure>(targets: Targets<Failure>, failure: Failure): boolean {
    if (!targets.hasNext(failure)) return false;
    targets.leave(failure);
    reportRetry(this.exchange, this, failure.reason);
    const { backoffMs } = targets;
    if (backoffMs === 0) targets.callNext();
    else this.clock.after(backoffMs, () => targets.callNext());
    return true;
  }

  retryResponse(status: number, headers: HeaderList): boolean {
    const { retry } = this.settings;
    if (retry === undefined || this.left === 0) return false;
    const isFailure = retry.codes.has(status) || retry.condition?.(this.exchange, status, headers) === true;
    return isFailure && this.next(this, { reason: `status ${status}`, error: undefined });
  }

  failed(error: GatewayError): void {
    if (!this.next(this, { reason: error.detail ?? error.message, error })) this.fail(error);
  }

  hasNext({ error }: CallFailure): boolean {
    if (this.left === 0 || !this.delivery.canReplace) return false;
    if (!mayRepeat(this.exchange.request, error)) return false;
    const { retry } = this.settings;
    const isWanted = retry !== undefined && retry.precondition?.(this.exchange) !== false;
    return isWanted || (error !== undefined && this.#isUnsent(error));
  }

  /** Returns true if no server has processed the request, and the next attempt can reach one. */
  #isUnsent(error: GatewayError): boolean {
    return isStale(error) || (this.exchange.upstream.hasOtherEndpoints && isUnconnected(error));
  }

  leave(): void {
    this.#call?.abort();
  }

  get left(): number {
    return Math.max(0, this.#retry.attempts + 1 - this.#started);
  }

  get backoffMs(): number {
    return this.#retry.backoffMs * 2 ** (this.#started - 1);
  }

  callNext(): void {
    this.#owner.callNext();
  }

  get #retry(): RetrySettings {
    return this.settings.retry ?? STALE_RETRY;
  }

  get clock(): Clock {
    return this.#owner.clock;
  }

  get redaction(): Redaction {
    return this.#owner.redaction;
  }

  fail(error: GatewayError): void {
    this.#owner.fail(error);
  }

  broke(error: unknown): void {
    this.#owner.broke(error);
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    this.#owner.upgraded(status, headers, socket);
  }

  isUploading(): boolean {
    return this.#owner.isUploading();
  }
}

function isStale({ cause }: GatewayError): boolean {
  return cause instanceof HttpClientError && cause.kind === "stale";
}

/** Returns true if connecting failed, so that the server has received nothing. */
function isUnconnected({ cause }: GatewayError): boolean {
  return cause instanceof HttpClientError && (cause.kind === "connect" || cause.kind === "connect-timeout");
}
