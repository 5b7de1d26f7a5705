/**
 * Runs the steps of a request in the order that ARCHITECTURE.md lists. The response and settle steps are in
 * `delivery.ts`.
 */
import type { Duplex } from "node:stream";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Prepared, PreparedCall } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, forkRequest, type GatewayRequest } from "../../core/exchange.ts";
import type { CompiledScope } from "../../core/policy.ts";
import { noMemoryFor, readBody } from "../../core/read-body.ts";
import type { Reply } from "../../core/reply.ts";
import type { ClientSink } from "../../core/sink.ts";
import { redactedTrace, requestState } from "../../core/snapshot.ts";
import type { ListenerScopes, Route, WeightedBackend } from "../../core/topology.ts";
import { type BodyMemory, peekFirst, type RequestBodyStream, readExactly } from "../../http/body.ts";
import type { HeaderList } from "../../http/headers.ts";
import { withholdCredentials } from "../../identity/access/withheld-credentials.ts";
import type { RequestStage } from "../../record/trace/record.ts";
import {
  chooseBackend,
  chooseBySession,
  matchEarly,
  rejectAmbiguousPath,
  rejectMisdirected,
  routeNotFound,
  selectScopes,
} from "../route/match-route.ts";
import { type AttemptOwner, AttemptRunner } from "./attempt-runner.ts";
import { BodyRules, type InnerRun, type InspectingRun, inspectBody, passInner } from "./before-call.ts";
import { backendErrorReply, Delivery, Failures } from "./delivery.ts";
import type { PipelineEnv, Served } from "./pipeline-env.ts";
import { policiesOf, runAdmission, runRequestHooks } from "./run-hooks.ts";

function traceStart(exchange: Exchange, env: Pick<PipelineEnv, "trace" | "redaction">): void {
  const trace = env.trace(exchange);
  exchange.trace = trace && redactedTrace(trace, exchange, env.redaction);
  // Secrets are collected first, because a transformation may copy a credential and another policy may remove the
  // original.
  if (exchange.trace) exchange.credentials.secrets = env.redaction.secrets(exchange.request.headers.pairs);
  exchange.trace?.point({ type: "requestStarted" });
}

/** Sets the parent of the backend's own spans. */
function setTraceparent(
  { records: { spans }, traceparent, request }: Exchange,
  protocol: "http" | "mcp" | "llm",
): void {
  const value = spans?.nextCall(protocol) ?? traceparent;
  if (value !== undefined) request.headers.set("traceparent", value);
}

/** Throws if the call requires an audit record that cannot be written. */
function reportCall({ records: { audit, spans }, attributes, trace }: Exchange, clock: Clock): void {
  spans?.called(clock.monotonicMs());
  if (attributes.backend?.protocol !== "http") audit?.check();
  if (trace && attributes.mcp) trace.point({ type: "policyEvent", kind: "mcp", details: { ...attributes.mcp } });
  if (trace && attributes.a2a) trace.point({ type: "policyEvent", kind: "a2a", details: { ...attributes.a2a } });
  if (trace && attributes.llm) trace.point({ type: "policyEvent", kind: "llm", details: { ...attributes.llm } });
}

function tracePolicies({ trace }: Exchange, { phase, of, effectivePolicy }: CompiledScope): void {
  trace?.point({ type: "policySelection", phase, effectivePolicy, ...(of === undefined ? {} : { of }) });
}

export function handle(env: PipelineEnv, served: Served, exchange: Exchange, sink: ClientSink): void {
  if (env.forwardToThread?.(served, exchange, sink) !== true) new Flow(env, served, exchange, sink).start();
}

class Flow implements AttemptOwner, InspectingRun, InnerRun {
  readonly exchange: Exchange;
  readonly clock: PipelineEnv["clock"];
  readonly redaction: PipelineEnv["redaction"];
  readonly isDry: boolean;
  readonly #env: PipelineEnv;
  readonly #served: Served;
  readonly #sink: ClientSink;
  readonly #delivery: Delivery;
  readonly #failures: Failures;
  readonly #held: HeldRequest;
  readonly #attempts: AttemptRunner;
  #rules: BodyRules | undefined;
  #route: Route | undefined;
  /** Set if the request is for a login path of this route. */
  #loginRoute: Route | undefined;
  #scopes: ListenerScopes;

  constructor(env: PipelineEnv, served: Served, exchange: Exchange, sink: ClientSink) {
    this.#env = env;
    this.#served = served;
    this.#scopes = served.listener;
    this.#sink = sink;
    this.exchange = exchange;
    this.clock = env.clock;
    this.redaction = env.redaction;
    this.isDry = env.dry !== undefined;
    this.#delivery = new Delivery(env, exchange, sink, this.fail);
    this.#failures = new Failures(env, exchange, this.#delivery, (error) =>
      backendErrorReply(this.#route, exchange, error),
    );
    this.#held = new HeldRequest(exchange, sink, this);
    this.#attempts = new AttemptRunner(this, exchange, this.#delivery);
    exchange.interrupter = this;
    sink.onClose = (complete) => this.#delivery.clientClosed(complete);
    sink.onStalled = () => this.fail(new GatewayError("request_timeout"));
  }

  start(): void {
    try {
      traceStart(this.exchange, this.#env);
      this.#snapshot("initial request");
      this.#gatewayPhase();
    } catch (error) {
      this.fail(error);
    }
  }

  #gatewayPhase(): void {
    const { listener, table } = this.#served;
    rejectMisdirected(listener.tls?.parts, this.exchange);
    this.#removeOverrides(listener.namedOverrides);
    this.#scopes = selectScopes(listener, this.exchange.request);
    const scope = this.#scopes.policies;
    this.enter(scope);
    if (scope.isTransparent) this.#matchRoute();
    else {
      const early = matchEarly(this.#scopes, table, this.exchange.request);
      const preface = scope.access.length === 0 ? undefined : (early?.policies ?? this.#scopes.unmatched).preface;
      if (preface) this.#delivery.entered.push(preface);
      if (early?.policies.loginPaths?.has(this.exchange.request.path) === true) this.#loginRoute = early;
      const access = this.#loginRoute === undefined ? scope : (scope.forLogins ?? scope);
      this.pass(preface, "access", () =>
        this.pass(access, "access", () => this.pass(scope, "shape", () => this.#matchRoute())),
      );
    }
  }

  #matchRoute(): void {
    const { request, trace } = this.exchange;
    const { table } = this.#served;
    const { unmatched } = this.#scopes;
    this.#snapshot("gateway policies");
    // The scope of the route replaces its preface, which contains only the policies that ran before the gateway's.
    if (this.#delivery.entered.length > 1) this.#delivery.entered.length = 1;
    const route = table.match(request);
    trace?.point(
      { type: "routeSelection", selectedRoute: route?.name ?? null, evaluatedRoutes: table.evaluated(request) },
      route ? "info" : "error",
    );
    if (!route) {
      this.enter(unmatched);
      this.pass(unmatched, "access", () => this.fail(routeNotFound(this.exchange.request, table)));
      return;
    }
    // The policies of the gateway did not check whether the client may use another route.
    if (this.#loginRoute !== undefined && route !== this.#loginRoute) throw new GatewayError("route_not_found");
    this.#route = route;
    this.exchange.route = route.name;
    rejectAmbiguousPath(request, route, table);
    // What another route names, perhaps that of another author, does not pass here.
    if (this.#served.listener.namedOverrides?.size) this.#removeOverrides(route.namedOverrides);
    this.#routePhase(route);
  }

  /** A backend must not serve another path or with another method than those that routes and policies read. */
  #removeOverrides(named: ReadonlySet<string> | undefined): void {
    if (named === undefined) return;
    const { headers } = this.exchange.request;
    const removed = headers.overrides(named);
    if (removed === undefined) return;
    this.exchange.keepHeaders();
    headers.removeOverrides(named);
    this.exchange.trace?.point({ type: "policyEvent", kind: "overrideHeaders", details: { removed } });
  }

  #routePhase(route: Route): void {
    const scope = route.policies;
    const gateway = this.#scopes.policies;
    const limits = policiesOf([gateway, scope], ({ admit }) => admit.head);
    this.enter(scope);
    if (scope.isTransparent && limits.length === 0) this.#leaveRoute(route);
    else
      this.pass(scope, "access", () => {
        const shape = (): void => this.pass(scope, "shape", () => this.#leaveRoute(route));
        if (limits.length > 0) runAdmission(this, "head", limits, shape);
        else shape();
      });
  }

  #leaveRoute(route: Route): void {
    this.#snapshot("route policies");
    this.#held.remember();
    this.#held.holdSmall(() => this.#backendPhase(route));
  }

  #backendPhase(route: Route): void {
    const { upstream } = this.exchange;
    upstream.preferred = undefined;
    const chosen = chooseBySession(route, this.exchange) ?? chooseBackend(route, this.#env.random, this.exchange);
    if (!chosen) throw new GatewayError("no_backend");
    if (this.exchange.request.method === "CONNECT" && chosen.backend.routing?.acceptsConnect !== true)
      throw new GatewayError("method_not_allowed");
    const scope = chosen.policies;
    this.#held.restore();
    upstream.picked = undefined;
    if (route.policies.settings.sessions) upstream.backendIndex = route.backends.indexOf(chosen);
    this.exchange.attributes.backend = chosen.backend.attributes;
    setTraceparent(this.exchange, chosen.backend.attributes.protocol);
    withholdCredentials(this.exchange, this.exchange.request);
    if (this.#delivery.entered.length > 2) this.#delivery.entered.length = 2;
    this.enter(scope);
    if (scope.isTransparent) this.#prepare(chosen);
    else this.pass(scope, "access", () => this.pass(scope, "shape", () => this.#prepare(chosen)));
  }

  #prepare(chosen: WeightedBackend): void {
    const { backend } = chosen;
    const { entered } = this.#delivery;
    if (backend.parsesBody && this.exchange.request.body.kind === "stream") this.askForBody();
    let result: Prepared | Promise<Prepared>;
    try {
      result = backend.prepare(this.exchange, {
        model: entered.some(({ sight }) => sight.model),
        call: entered.some(({ sight }) => sight.call),
      });
    } catch (error) {
      this.#rejected(error);
      return;
    }
    if (result instanceof Promise)
      result
        .then(
          (prepared) => this.#prepared(chosen, prepared),
          (error) => this.#rejected(error),
        )
        .catch(this.fail);
    else this.#prepared(chosen, result);
  }

  /** The limits count a request that its backend rejects. */
  #rejected(error: unknown): void {
    this.rules.admit(this.#delivery.entered, () => this.fail(error));
  }

  #prepared(chosen: WeightedBackend, prepared: Prepared): void {
    // The client may have disconnected in the meantime.
    if (this.exchange.isOver) return;
    const { entered } = this.#delivery;
    if ("status" in prepared) this.#replyUncalled(prepared);
    else if (chosen.backend.parsesBody) this.rules.pass(entered, entered, () => this.#reach(chosen, prepared));
    else if (entered.some(readsBody))
      inspectBody(this, entered, (charged) => this.rules.pass(entered, charged, () => this.#reach(chosen, prepared)));
    else this.#reach(chosen, prepared);
  }

  /** A rejection by the backend skips the rules, but limits count it. */
  #replyUncalled(reply: Reply): void {
    if (reply.status >= 400) this.rules.admit(this.#delivery.entered, () => this.reply(reply));
    else this.#replyPassed(reply);
  }

  #replyPassed(reply: Reply): void {
    this.rules.passUncalled(this.#delivery.entered, () => {
      this.admitted();
      this.reply(reply);
    });
  }

  #reach(chosen: WeightedBackend, prepared: PreparedCall): void {
    if (prepared.scopes === undefined) this.#call(chosen, prepared);
    else passInner(this, prepared.scopes(), () => this.#call(chosen, prepared));
  }

  #call(chosen: WeightedBackend, prepared: PreparedCall): void {
    if (this.#delivery.isDone) return;
    this.admitted();
    reportCall(this.exchange, this.clock);
    if (this.exchange.request.body.kind === "stream") this.#sink.askForBody();
    this.#attempts.call(chosen, prepared);
  }

  callNext(): void {
    if (this.#delivery.isDone || this.#route === undefined) return;
    try {
      this.#backendPhase(this.#route);
    } catch (error) {
      this.fail(error);
    }
  }

  /** A response that has started is cut off. */
  interrupt(outcome: Reply | GatewayError): void {
    if (outcome instanceof GatewayError || !this.#delivery.canReplace) {
      this.fail(outcome instanceof GatewayError ? outcome : new GatewayError("backend_response_invalid"));
      return;
    }
    const { run } = this.#delivery;
    this.#delivery.run = undefined;
    run?.abort();
    try {
      this.#delivery.reply(outcome);
    } catch (error) {
      this.fail(error);
    }
  }

  broke(error: unknown): void {
    this.fail(error);
    // The response was marked as delivered but was not, so the client must not wait for more data.
    if (this.#delivery.isDone) this.#sink.destroy();
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    headers.set("x-request-id", this.exchange.id);
    this.exchange.response = { status, headers, source: "upstream" };
    this.#sink.upgrade(status, headers, socket);
  }

  readonly fail = (thrown: unknown): void => this.#failures.answer(thrown);

  get isDone(): boolean {
    return this.#delivery.isDone;
  }

  isUploading(): boolean {
    return this.#sink.isUploading();
  }

  holdBody(maxBytes: number, next: () => void): void {
    this.#held.hold(maxBytes, next);
  }

  peekBody(next: (first: Buffer | undefined) => void): void {
    this.#held.peek(next);
  }

  get rules(): BodyRules {
    this.#rules ??= new BodyRules(this);
    return this.#rules;
  }

  admitted(): void {
    const waiting = this.exchange.onAdmitted;
    this.exchange.onAdmitted = undefined;
    for (const admitted of waiting ?? []) admitted();
  }

  askForBody(): void {
    this.#sink.askForBody();
  }

  reply(reply: Reply): void {
    this.#delivery.reply(reply);
  }

  enter(scope: CompiledScope): void {
    // The scope is entered before its first hook runs, so that its response hooks also process rejections.
    this.#delivery.entered.push(scope);
    if (!scope.isTransparent || scope.admit.head.length > 0) this.exchange.keepHeaders();
    this.exchange.records.spans?.enter(scope.phase, this.clock.monotonicMs());
    tracePolicies(this.exchange, scope);
  }

  pass(scope: CompiledScope | undefined, list: "access" | "shape", next: () => void): void {
    if (scope === undefined || scope[list].length === 0) next();
    else
      runRequestHooks(this, list, scope[list], (reply) => {
        if (!reply) next();
        else if (list === "access") this.reply(reply);
        else this.#replyPassed(reply);
      });
  }

  #snapshot(stage: RequestStage): void {
    const { trace, records } = this.exchange;
    records.spans?.leave(this.clock.monotonicMs());
    if (trace === undefined) return;
    const { request } = this.exchange;
    const path = stage === "initial request" ? request.rawPath : request.path;
    trace.point({ type: "requestSnapshot", stage, requestState: requestState(this.exchange, this.redaction, path) });
  }
}

function readsBody({ body, admit }: CompiledScope): boolean {
  return body.length > 0 || admit.body.length > 0 || admit.call.length > 0;
}

const BODY = peerInput("client/request-body");

/** A body of known length up to this size is read before the backend is called, so that it can be sent again. */
const SMALL_BODY_BYTES = 64 * 1024;

/** `isDone` is true if the client disconnected or received a response in the meantime. */
interface BodyWaiter {
  readonly isDone: boolean;
  fail(error: unknown): void;
}

/** Holds the request for repeated attempts, each of which starts from the request as it left the route phase. */
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
