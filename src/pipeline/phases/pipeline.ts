/**
 * The way of a request, one step per row of design.md section 2: gateway phase, route, route phase, admission,
 * backend phase with its attempts, response, settle. No policy or provider is named here.
 */
import type { Duplex, Readable } from "node:stream";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, forkRequest, type GatewayRequest } from "../../core/exchange.ts";
import type { HookResult, Outcome, RetrySettings } from "../../core/policy.ts";
import { asGatewayError, errorReply, type Reply } from "../../core/reply.ts";
import { hasEncodedSeparator, pathForMatching, withSeparatorsDecoded } from "../../core/request-path.ts";
import type { ClientSink } from "../../core/sink.ts";
import { requestState } from "../../core/snapshot.ts";
import type { CompiledScope, Listener, Route, WeightedBackend } from "../../core/topology.ts";
import { BodyTooLarge, peekFirst, readAll, readExactly } from "../../lib/http/body.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import type { Clock } from "../../lib/process/clock.ts";
import type { RequestStage } from "../../trace/events.ts";
import type { Redaction } from "../../trace/redact.ts";
import type { Trace } from "../../trace/trace.ts";
import { chooseBackend } from "../route/choose-backend.ts";
import type { RouteTable } from "../route/match-route.ts";
import { Attempt, type AttemptOwner } from "./attempt.ts";
import { BodyRules, readBodies, scoped } from "./body-rules.ts";
import { Delivery } from "./delivery.ts";
import { lookAtBody } from "./llm-sight.ts";
import { runAdmission, runRequestHooks } from "./run-hooks.ts";

/** A body of known length up to this is read before the backend is called: it can then be sent again. */
const SMALL_BODY_BYTES = 64 * 1024;
/** A kept connection that was closed under us is worth one more try, whatever the retry policy says. */
const STALE_RETRY: RetrySettings = { attempts: 1, backoffMs: 0, codes: new Set() };

/** A failure, and one while answering it; after that there is no sane answer. */
const MAX_FAILURES = 2;

export interface PipelineEnv {
  readonly clock: Clock;
  readonly redaction: Redaction;
  random(): number;
  /** The trace for this exchange, if somebody waits for one like it. */
  trace(exchange: Exchange): Trace | undefined;
  settled(exchange: Exchange, outcome: Outcome): void;
  defect(exchange: Exchange, error: unknown): void;
}

/** A listener as requests meet it: its compiled configuration and the table made from its routes. */
export interface Served {
  readonly listener: Listener;
  readonly table: RouteTable;
}

export function handle(env: PipelineEnv, served: Served, exchange: Exchange, sink: ClientSink): void {
  new Flow(env, served, exchange, sink).start();
}

class Flow implements AttemptOwner {
  readonly exchange: Exchange;
  readonly clock: Clock;
  readonly redaction: Redaction;
  readonly #env: PipelineEnv;
  readonly #served: Served;
  readonly #sink: ClientSink;
  readonly #delivery: Delivery;
  #rules: BodyRules | undefined;
  #routeRequest: GatewayRequest | undefined;
  #route: Route | undefined;
  #retry: RetrySettings = STALE_RETRY;
  #attempts = 0;

  constructor(env: PipelineEnv, served: Served, exchange: Exchange, sink: ClientSink) {
    this.#env = env;
    this.#served = served;
    this.#sink = sink;
    this.exchange = exchange;
    this.clock = env.clock;
    this.redaction = env.redaction;
    this.#delivery = new Delivery(env, exchange, sink, this.fail);
    sink.onClose = (complete) => this.#delivery.clientClosed(complete);
    sink.onStalled = () => this.fail(new GatewayError("request_timeout"));
  }

  start(): void {
    try {
      const { exchange } = this;
      exchange.trace = this.#env.trace(exchange);
      if (exchange.trace !== undefined) this.#traceBegins(exchange, exchange.trace);
      this.#snapshot("initial request");
      this.#gatewayPhase();
    } catch (error) {
      this.fail(error);
    }
  }

  #traceBegins(exchange: Exchange, trace: Trace): void {
    // A transformation may copy a credential, and another policy take the original out.
    exchange.secrets = this.redaction.secrets(exchange.request.headers.pairs);
    trace.point({ type: "requestStarted" });
  }

  // GATEWAY PHASE

  #gatewayPhase(): void {
    const scope = this.#served.listener.policies;
    this.#enter(scope);
    if (scope.isTransparent) this.#leaveGateway();
    else
      this.#preface(scope, () =>
        this.#pass(scope, "access", () => this.#pass(scope, "shape", () => this.#leaveGateway())),
      );
  }

  /** A preflight has no credentials to show to the gateway, and a page must be able to read why it was refused. */
  #preface(gateway: CompiledScope, next: () => void): void {
    const { listener, table } = this.#served;
    const { request } = this.exchange;
    const route = gateway.access.length === 0 ? undefined : table.match(request, pathForMatching(request.path));
    const { preface } = route?.policies ?? listener.unmatched;
    if (gateway.access.length === 0 || preface === undefined) next();
    else {
      this.#delivery.entered.push(preface);
      this.#pass(preface, "access", next);
    }
  }

  #leaveGateway(): void {
    this.#snapshot("gateway policies");
    this.#matchRoute();
  }

  #matchRoute(): void {
    const { request, trace } = this.exchange;
    // The whole scope of the route takes the place of its preface.
    this.#delivery.entered.length = 1;
    const path = pathForMatching(request.path);
    const route = this.#served.table.match(request, path);
    if (trace !== undefined) {
      const evaluatedRoutes = this.#served.table.evaluated(request);
      trace.point(
        { type: "routeSelection", selectedRoute: route?.name ?? null, evaluatedRoutes },
        route ? "info" : "error",
      );
    }
    if (!route) {
      const scope = this.#served.listener.unmatched;
      this.#enter(scope);
      this.#pass(scope, "access", () => this.fail(this.#noRoute()));
      return;
    }
    this.#route = route;
    this.exchange.route = route.name;
    if (hasEncodedSeparator(request.path) && (route.isProtected || this.#couldMeanProtected())) {
      throw new GatewayError("bad_request", {
        message: "bad request: an encoded separator in the path of a protected route",
      });
    }
    this.#routePhase(route);
  }

  /** `/admin%2fusers` is another path than `/admin/users` to us, but perhaps not to the backend of an open route. */
  #couldMeanProtected(): boolean {
    const { request } = this.exchange;
    const path = pathForMatching(withSeparatorsDecoded(request.path));
    return this.#served.table.match(request, path)?.isProtected === true;
  }

  #noRoute(): GatewayError {
    const { method, host, path } = this.exchange.request;
    const names = this.#served.table.evaluated(this.exchange.request);
    const tried = names.length === 0 ? "no route serves that host" : `tried ${names.slice(0, 10).join(", ")}`;
    return new GatewayError("route_not_found", { detail: `nothing matches ${method} ${host}${path}: ${tried}` });
  }

  // ROUTE PHASE

  #routePhase(route: Route): void {
    const scope = route.policies;
    this.#enter(scope);
    if (scope.isTransparent && !this.#hasAdmission(route)) this.#leaveRoute(route);
    else
      this.#pass(scope, "access", () =>
        this.#admit(route, () => this.#pass(scope, "shape", () => this.#leaveRoute(route))),
      );
  }

  #hasAdmission(route: Route): boolean {
    return this.#served.listener.policies.admit.length > 0 || route.policies.admit.length > 0;
  }

  #admit(route: Route, next: () => void): void {
    if (!this.#hasAdmission(route)) next();
    else runAdmission(this, "admit", scoped("admit", [this.#served.listener.policies, route.policies]), next);
  }

  #leaveRoute(route: Route): void {
    this.#snapshot("route policies");
    this.#routeRequest = this.exchange.request;
    const { body } = this.exchange.request;
    if (body.kind === "stream" && body.length !== undefined && body.length <= SMALL_BODY_BYTES)
      this.#readSmallBody(body.stream, body.length, route);
    else this.#backendPhase(route);
  }

  #readSmallBody(stream: Readable, length: number, route: Route): void {
    this.#sink.askForBody();
    readExactly(stream, length, (error, bytes) => {
      if (this.#delivery.isDone) return;
      try {
        if (error) throw error;
        this.#keepBody(bytes);
        this.#backendPhase(route);
      } catch (thrown) {
        this.fail(thrown);
      }
    });
  }

  // BACKEND PHASE: once per attempt

  #backendPhase(route: Route): void {
    const chosen = chooseBackend(route, this.#env.random);
    if (!chosen) throw new GatewayError("no_backend");
    const { exchange } = this;
    exchange.request = forkRequest(this.#routeRequest as GatewayRequest);
    exchange.facts.backend = chosen.backend.facts;
    this.#withholdCredentials();
    this.#delivery.entered.length = 2;
    this.#enter(chosen.policies);
    const scope = chosen.policies;
    if (scope.isTransparent) this.#reachBackend(chosen);
    else this.#pass(scope, "access", () => this.#pass(scope, "shape", () => this.#reachBackend(chosen)));
  }

  #reachBackend(chosen: WeightedBackend): void {
    const { entered } = this.#delivery;
    if (chosen.backend.prepare === undefined && !readBodies(entered)) {
      this.#call(chosen);
      return;
    }
    const pass = (charged: readonly CompiledScope[]): void =>
      this.#bodyRules.pass(entered, charged, () => this.#call(chosen));
    if (chosen.backend.prepare !== undefined) this.#prepare(chosen, () => pass(entered));
    else lookAtBody(this, entered, pass);
  }

  /** A credential that authentication read is for the gateway: a backend gets it only if a policy says so. */
  #withholdCredentials(): void {
    const { credentialHeaders, credentialQuery, request } = this.exchange;
    if (credentialHeaders) for (const name of credentialHeaders) request.headers.delete(name);
    if (credentialQuery && credentialQuery.length > 0) {
      request.query = request.query
        .split("&")
        .filter((part) => !credentialQuery.includes(part.split("=", 1)[0] ?? ""))
        .join("&");
    }
  }

  get #bodyRules(): BodyRules {
    this.#rules ??= new BodyRules(this);
    return this.#rules;
  }

  #prepare(chosen: WeightedBackend, next: () => void): void {
    // A backend that prepares reads the body: a client that waits for permission gets it now.
    if (this.exchange.request.body.kind === "stream") this.#sink.askForBody();
    const done = (reply: Reply | undefined): void => (reply ? this.#replyPrepared(reply) : next());
    const failed = (error: unknown): void => this.#bodyRules.admit(this.#delivery.entered, () => this.fail(error));
    let result: HookResult;
    try {
      result = chosen.backend.prepare?.(this.exchange);
    } catch (error) {
      failed(error);
      return;
    }
    if (result instanceof Promise) result.then(done, failed).catch(this.fail);
    else done(result);
  }

  /** A refusal in the backend's own words gives nothing away, so rules need not be asked; anything else they judge. */
  #replyPrepared(reply: Reply): void {
    const { entered } = this.#delivery;
    if (reply.status >= 400) this.#bodyRules.admit(entered, () => this.#reply(reply));
    else this.#bodyRules.passUncalled(entered, () => this.#reply(reply));
  }

  #call(chosen: WeightedBackend): void {
    if (this.#delivery.isDone) return;
    const { trace, facts } = this.exchange;
    if (trace !== undefined && facts.mcp) trace.point({ type: "policyEvent", kind: "mcp", details: { ...facts.mcp } });
    if (trace !== undefined && facts.llm) trace.point({ type: "policyEvent", kind: "llm", details: { ...facts.llm } });
    this.#retry = chosen.policies.settings.retry ?? STALE_RETRY;
    const isLast = this.#attempts >= this.#retry.attempts;
    this.#attempts += 1;
    const attempt = new Attempt(this, this.exchange, this.#delivery, chosen, isLast);
    if (this.exchange.request.body.kind === "stream") this.#sink.askForBody();
    attempt.start(chosen.backend);
  }

  /** The attempt failed before its head: another follows if it may, else the error becomes the answer. */
  attemptFailed(error: GatewayError, mayRetry: boolean): void {
    const retry = this.#retry;
    const wanted = retry !== STALE_RETRY || isStale(error);
    const isLast = this.#attempts > retry.attempts;
    if (mayRetry && wanted && !isLast && this.#route && this.#delivery.canReplace) this.#again(this.#route, retry);
    else this.fail(error);
  }

  broke(error: unknown): void {
    this.fail(error);
    // An answer that counted as handed over was not: the client must not wait for the rest.
    if (this.#delivery.isDone) this.#sink.destroy();
  }

  isUploading(): boolean {
    return this.#sink.isUploading();
  }

  #again(route: Route, retry: RetrySettings): void {
    const next = (): void => {
      if (this.#delivery.isDone) return;
      try {
        this.#backendPhase(route);
      } catch (error) {
        this.fail(error);
      }
    };
    if (retry.backoffMs === 0) next();
    else this.clock.after(retry.backoffMs * 2 ** (this.#attempts - 1), next);
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    headers.set("x-request-id", this.exchange.id);
    this.exchange.response = { status, headers, source: "upstream" };
    this.#sink.upgrade(status, headers, socket);
  }

  // SHORT CUTS

  #reply(reply: Reply): void {
    this.#delivery.reply(reply);
  }

  /** Anything thrown becomes an answer while none has begun, and a broken connection afterwards. */
  readonly fail = (thrown: unknown): void => {
    const error = asGatewayError(thrown);
    if (error.code === "internal") this.#env.defect(this.exchange, error.cause ?? error);
    if (this.#delivery.isDone) return;
    const { code, source, message } = error;
    // A reason may quote what the client sent: the log and the trace get it without the credentials.
    const detail =
      error.detail && this.redaction.scrub(error.detail, this.exchange.request.headers.pairs, this.exchange.secrets);
    this.exchange.failure = { code, source, message, detail };
    const { run } = this.#delivery;
    this.#delivery.run = undefined;
    run?.abort();
    if (!this.#delivery.canReplace) this.#delivery.breakOff();
    else if (this.#failures < MAX_FAILURES) {
      this.#failures += 1;
      this.#answer(error);
    } else this.#delivery.breakOff();
  };
  #failures = 0;

  /** The second failure came of a response hook: it would fail again, so the answer goes out without them. */
  #answer(error: GatewayError): void {
    try {
      this.#delivery.reply(errorReply(error), this.#failures === 1);
    } catch (thrown) {
      this.fail(thrown);
    }
  }

  #enter(scope: CompiledScope): void {
    // Entered before its first hook: its response hooks then also see the answers that refuse.
    this.#delivery.entered.push(scope);
    this.exchange.trace?.point({ type: "policySelection", phase: scope.phase, effectivePolicy: scope.effectivePolicy });
  }

  #pass(scope: CompiledScope, list: "access" | "shape", next: () => void): void {
    if (scope[list].length === 0) next();
    else
      runRequestHooks(this, scope.phase, scope[list], (reply) => {
        if (!reply) next();
        else if (list === "access") this.#reply(reply);
        else this.#bodyRules.passUncalled(this.#delivery.entered, () => this.#reply(reply));
      });
  }

  /** Whole in memory: for this attempt, and for those that may follow it. */
  #keepBody(bytes: Buffer): void {
    const body = { kind: "bytes", bytes } as const;
    this.exchange.request.body = body;
    if (this.#routeRequest) this.#routeRequest.body = body;
  }

  holdBody(maxBytes: number, next: () => void): void {
    const { body } = this.exchange.request;
    if (body.kind !== "stream") {
      next();
      return;
    }
    if (body.length !== undefined && body.length > maxBytes) throw new GatewayError("body_too_large");
    this.#sink.askForBody();
    readAll(body.stream, maxBytes)
      .then(
        (bytes) => {
          this.#keepBody(bytes);
          next();
        },
        (error) => {
          throw error instanceof BodyTooLarge ? new GatewayError("body_too_large") : error;
        },
      )
      .catch((error) => {
        if (!this.#delivery.isDone) this.fail(error);
      });
  }

  peekBody(next: (first: Buffer | undefined) => void): void {
    const { body } = this.exchange.request;
    if (body.kind !== "stream") {
      next(body.kind === "bytes" ? body.bytes : undefined);
      return;
    }
    this.#sink.askForBody();
    peekFirst(body.stream, (error, first) => {
      if (this.#delivery.isDone) return;
      try {
        if (error) throw error;
        if (first === undefined) this.#keepBody(Buffer.alloc(0));
        next(first);
      } catch (thrown) {
        this.fail(thrown);
      }
    });
  }

  #snapshot(stage: RequestStage): void {
    if (this.exchange.trace === undefined) return;
    this.exchange.trace.point({
      type: "requestSnapshot",
      stage,
      requestState: requestState(this.exchange, this.#env.redaction),
    });
  }
}

function isStale(error: GatewayError): boolean {
  return (error.cause as { kind?: string } | undefined)?.kind === "stale";
}
