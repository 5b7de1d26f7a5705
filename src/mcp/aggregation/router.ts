/**
 * Routes the messages of a session or client group to its targets. `SingleRouter` serves one target whose names have no
 * prefix.
 */

import type { ResponseReceiver } from "../../core/backend.ts";
import type { McpGuardrails } from "../../core/mcp-guardrails.ts";
import type { WireTap } from "../../core/wire.ts";
import { HeaderList } from "../../http/headers.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  failureHeaders,
  type Interceptor,
  intercept,
  NO_CALL,
  ownCall,
  serverFailure,
} from "../protocol/call.ts";
import { guardrailInterceptor } from "../protocol/guarded-call.ts";
import {
  type ClientNotification,
  type ClientRequest,
  errorText,
  type ServerMessage,
  withId,
} from "../protocol/json-rpc.ts";
import type { Target } from "../server-side/target.ts";
import type { OpenOutcome, Upstream } from "../server-side/upstream.ts";
import { errorToFailure } from "./merge-responses.ts";
import type { Names } from "./names.ts";

export type RouterOutcome =
  | { readonly ok: true; readonly answer: ServerMessage; readonly version: string }
  | {
      readonly ok: false;
      readonly reason: string;
      readonly failure: Failure;
      text(id: string): string;
      refuse(sink: ResponseReceiver, id: string): void;
    };

export interface Router {
  readonly upstreams: readonly Upstream[];
  readonly names: Names;
  open(done: (outcome: RouterOutcome) => void, wire?: WireTap): void;
  run(call: Call): CallHandle;
  notify(message: ClientNotification, wire?: WireTap): void;
  /**
   * Returns a server's notification with the names that clients use, or undefined if the client must not receive it.
   */
  notificationText(upstream: Upstream, message: ServerMessage): string | undefined;
  change(change: TargetChange): readonly Upstream[];
}

export class SingleRouter implements Router {
  upstreams: readonly Upstream[];
  readonly names: Names;
  readonly #late: AddUpstream;
  readonly #interceptors: readonly Interceptor[];
  #upstream: Upstream;

  constructor(upstream: Upstream, names: Names, late: AddUpstream, interceptors: readonly Interceptor[]) {
    this.upstreams = [upstream];
    this.names = names;
    this.#upstream = upstream;
    this.#late = late;
    this.#interceptors = interceptors;
  }

  open(done: (outcome: RouterOutcome) => void, wire?: WireTap): void {
    const upstream = this.#upstream;
    upstream.open((outcome) => done(routerOutcome(upstream, outcome)), wire);
  }

  run(call: Call): CallHandle {
    const { target } = this.#upstream;
    call.routed?.(target);
    return intercept(call, this.#interceptors, this.#send, [target]);
  }

  readonly #send = (call: Call): CallHandle => this.#upstream.call(call);

  notify(message: ClientNotification, wire?: WireTap): void {
    this.#upstream.notify(message, wire);
  }

  notificationText(_upstream: Upstream, message: ServerMessage): string {
    return message.text;
  }

  change({ targets }: TargetChange): readonly Upstream[] {
    const changed = changedUpstreams(this.upstreams, targets, false, this.#late);
    if (changed === undefined) return [];
    this.upstreams = changed.next;
    this.#upstream = changed.next[0] ?? this.#upstream;
    return changed.left;
  }
}

/** Opens the servers for `initialize`, which the processors of `mcpGuardrails` can reject or change the result of. */
export function openGuarded(
  router: Router,
  request: ClientRequest,
  guardrails: McpGuardrails | undefined,
  done: (outcome: RouterOutcome) => void,
  wire: WireTap | undefined,
): void {
  let version = "";
  const call = ownCall(request, {
    guardrails,
    answered: (answer) => done({ ok: true, answer, version }),
    failed: (failure) => done(serverRefusal(failure)),
  });
  const open = (guarded: Call): CallHandle => {
    router.open((outcome) => {
      if (!outcome.ok) return done(outcome);
      version = outcome.version;
      guarded.answered(outcome.answer);
    }, wire);
    return NO_CALL;
  };
  intercept(
    call,
    [guardrailInterceptor],
    open,
    router.upstreams.map(({ target }) => target),
  );
}

function routerOutcome(upstream: Upstream, outcome: OpenOutcome): RouterOutcome {
  if (outcome.ok) return { ok: true, answer: outcome.answer, version: outcome.about.protocolVersion };
  if (outcome.answer) {
    const { answer } = outcome;
    const failure = errorToFailure(answer);
    const reason = `target "${upstream.target.name}" refused to initialize: ${failure.message}`;
    return refusal(reason, failure, (id) => withId(answer, id));
  }
  return serverRefusal(serverFailure(`target "${upstream.target.name}" ${outcome.reason}`, outcome.error));
}

export function serverRefusal(failure: Failure): RouterOutcome {
  return refusal(failure.message, failure, (id) => errorText(id, failure.code, failure.message, failure.data));
}

function refusal(reason: string, failure: Failure, text: (id: string) => string): RouterOutcome {
  const { status } = failure;
  return {
    ok: false,
    reason,
    failure,
    text,
    refuse: (sink, id) => sendJson(sink, status, text(id), failureHeaders(failure)),
  };
}

export function sendJson(
  sink: ResponseReceiver,
  status: number,
  json: string | readonly Buffer[],
  extra: readonly string[] = [],
): void {
  const body = typeof json === "string" ? [Buffer.from(json)] : json;
  const length = body.reduce((sum, piece) => sum + piece.length, 0);
  sink.head(status, new HeaderList(["content-type", "application/json", "content-length", String(length), ...extra]));
  for (const piece of body) sink.data(piece);
  sink.end();
}

export interface TargetChange {
  /** Targets with an unchanged definition are the same objects as before the change. */
  readonly targets: readonly Target[];
  readonly names: Names;
}

/** Adds a target to an open session. `before` is the previous upstream with the same name. */
export type AddUpstream = (target: Target, before: Upstream | undefined) => Upstream;

interface ChangedUpstreams {
  readonly next: readonly Upstream[];
  /** The caller must close these upstreams when their calls have ended. */
  readonly left: readonly Upstream[];
}

/**
 * Keeps upstreams with an unchanged definition, replaces changed ones, and removes those without a target. Adds
 * upstreams for new targets if `takesNew` is true. Returns undefined if nothing changes.
 */
export function changedUpstreams(
  current: readonly Upstream[],
  targets: readonly Target[],
  takesNew: boolean,
  late: AddUpstream,
): ChangedUpstreams | undefined {
  const next: Upstream[] = [];
  for (const target of targets) {
    const before = current.find((upstream) => upstream.target.name === target.name);
    if (before?.target === target) next.push(before);
    else if (before || takesNew) next.push(late(target, before));
  }
  const left = current.filter((upstream) => !next.includes(upstream));
  const isSame = left.length === 0 && next.length === current.length && next.every((one, i) => one === current[i]);
  return isSame ? undefined : { next, left };
}
