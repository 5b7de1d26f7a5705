/**
 * Presents several targets as one server. A failed target is omitted from lists and reported (`failOpen`), or lists
 * fail (`failClosed`).
 */
import type { Clock } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import type { Logger } from "../../record/log/logger.ts";
import { accessProblem, addressedItem, LISTS, type Named, unknownMethod, unknownName } from "../protocol/access.ts";
import {
  type Call,
  type CallHandle,
  failCall,
  type Interceptor,
  intercept,
  LateCall,
  type LoginRequired,
  NO_CALL,
  runMessageSteps,
  serverFailure,
} from "../protocol/call.ts";
import {
  asResult,
  asServerMessage,
  type ClientNotification,
  METHOD_NOT_FOUND,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { type McpProtocol, REMOVED_METHODS, VERSIONS_2026 } from "../protocol/protocol-version.ts";
import { result2026 } from "../server-side/envelope-2026.ts";
import type { OpenOutcome, ServerAbout, Upstream } from "../server-side/upstream.ts";
import { type AggregateSubscription, discoverResult, subscribeToAll } from "./aggregate-subscription.ts";
import { accessInterceptor } from "./interceptors.ts";
import {
  failedMeta,
  GATEWAY_INFO,
  lowestVersion,
  mergeCapabilities,
  mergedList,
  mergeInstructions,
  requestAll,
  routable,
} from "./merge-responses.ts";
import { NameIndex } from "./name-index.ts";
import { type Names, renamedNotification, renamedRequest, renamedResult } from "./names.ts";
import {
  type AddUpstream,
  changedUpstreams,
  type Router,
  type RouterOutcome,
  serverRefusal,
  type TargetChange,
} from "./router.ts";

export interface AggregateOptions {
  readonly names: Names;
  readonly failureMode: () => "failOpen" | "failClosed";
  readonly protocol: McpProtocol;
  readonly late: AddUpstream;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly startWaitMs: () => number;
  readonly interceptors: readonly Interceptor[];
  arrived(upstream: Upstream): void;
}

export class AggregateRouter implements Router {
  upstreams: readonly Upstream[];
  names: Names;
  readonly #options: AggregateOptions;
  readonly #missing: SlowTargets;
  readonly #subscriptions = new Set<AggregateSubscription>();
  #index: NameIndex;
  #namedInterceptors: readonly Interceptor[];

  constructor(upstreams: readonly Upstream[], options: AggregateOptions) {
    this.upstreams = upstreams;
    this.names = options.names;
    this.#options = options;
    this.#missing = new SlowTargets({
      clock: options.clock,
      logger: options.logger,
      startWaitMs: options.startWaitMs,
      mayProceed: () => options.failureMode() === "failOpen",
      arrived: (upstream) => this.#arrived(upstream),
    });
    this.#index = new NameIndex(() => this.#present());
    this.#namedInterceptors = this.#namedSteps();
  }

  open(done: (outcome: RouterOutcome) => void, wire?: WireTap): void {
    this.#missing.open(this.upstreams, (outcomes) => done(this.#opened(outcomes)), wire);
  }

  run(call: Call): CallHandle {
    const { method } = call.request;
    const isRemoved = this.#options.protocol === "2026" && REMOVED_METHODS.has(method);
    const about = isRemoved ? undefined : addressedItem(call.request);
    // The processors get the name that the target uses.
    if (about) return this.#named(call, about);
    const targets = this.upstreams.map(({ target }) => target);
    return intercept(call, this.#options.interceptors, (own) => this.#run(own), targets);
  }

  #run(call: Call): CallHandle {
    const { method } = call.request;
    if (this.#options.protocol === "2026") {
      if (method === "server/discover") return this.#discover(call);
      if (method === "subscriptions/listen") return this.#listen(call);
      if (REMOVED_METHODS.has(method)) return failCall(call, unknownMethod(method));
    }
    if (Object.hasOwn(LISTS, method)) return this.#missing.waitForAll(() => this.#list(call));
    if (method === "ping") return this.#answer(call, "{}");
    if (method === "logging/setLevel") return this.#all(call, (about) => about.capabilities.logging !== undefined);
    return failCall(call, {
      code: METHOD_NOT_FOUND,
      status: 404,
      message: `Method not found: ${method} cannot be routed to one of several targets`,
    });
  }

  notify(message: ClientNotification, wire?: WireTap): void {
    for (const upstream of this.upstreams) upstream.notify(message, wire);
  }

  notificationText(upstream: Upstream, message: ServerMessage): string {
    if (message.method?.endsWith("/list_changed") === true) this.#index.clear();
    return renamedNotification(message, this.names, upstream.target.name);
  }

  /**
   * Adds targets only if the prefixing of names stays the same. Otherwise, names that the client has listed would
   * change.
   */
  change({ targets, names }: TargetChange): readonly Upstream[] {
    const takesNew = names.isPrefixed === this.names.isPrefixed;
    const changed = changedUpstreams(this.upstreams, targets, takesNew, this.#options.late);
    if (changed === undefined) return [];
    this.upstreams = changed.next;
    if (takesNew) {
      this.names = names;
      this.#namedInterceptors = this.#namedSteps();
    }
    this.#missing.forget(changed.left);
    this.#index = new NameIndex(() => this.#present());
    return changed.left;
  }

  #namedSteps(): readonly Interceptor[] {
    return [renamingInterceptor(this.names), ...this.#options.interceptors, accessInterceptor];
  }

  #opened(outcomes: ReadonlyMap<Upstream, OpenOutcome>): RouterOutcome {
    const abouts: { target: string; about: ServerAbout }[] = [];
    const failed = new Map<string, string>();
    let isOverloaded = true;
    let login: LoginRequired | undefined;
    for (const upstream of this.upstreams) {
      const outcome = outcomes.get(upstream) ?? { ok: false, reason: STILL_STARTING, error: "backend_unavailable" };
      if (outcome.ok) abouts.push({ target: upstream.target.name, about: outcome.about });
      else {
        failed.set(upstream.target.name, "reason" in outcome ? outcome.reason : "refused to initialize");
        isOverloaded &&= "reason" in outcome && outcome.error === "overloaded";
        // With several servers, the login challenge would not identify the server that requires it.
        if ("reason" in outcome && typeof outcome.error === "object" && this.upstreams.length === 1)
          login = outcome.error;
      }
    }
    if (abouts.length === 0 || (failed.size > 0 && this.#options.failureMode() === "failClosed")) {
      const reason = [...failed].map(([target, why]) => `target "${target}" ${why}`).join("; ");
      return serverRefusal(serverFailure(reason, login ?? (isOverloaded ? "overloaded" : "backend_unavailable")));
    }
    const version = lowestVersion(abouts.map(({ about }) => about.protocolVersion));
    const instructions = mergeInstructions(abouts, failed);
    const result = {
      protocolVersion: version,
      capabilities: this.#capabilities(abouts),
      serverInfo: GATEWAY_INFO,
      ...(instructions === undefined ? {} : { instructions }),
      ...failedMeta(failed),
    };
    return { ok: true, version, answer: asServerMessage(resultText("0", JSON.stringify(result))) };
  }

  #discover(call: Call): CallHandle {
    const abouts = this.upstreams.flatMap(({ about, target }) => (about ? [{ target: target.name, about }] : []));
    const failed = new Map(
      this.upstreams.filter(({ about }) => !about).map((upstream) => [upstream.target.name, this.#absence(upstream)]),
    );
    return this.#answer(
      call,
      discoverResult(this.#capabilities(abouts), mergeInstructions(abouts, failed), VERSIONS_2026),
    );
  }

  #list(call: Call): CallHandle {
    return mergedList(call, {
      upstreams: this.upstreams,
      names: this.names,
      failureMode: this.#options.failureMode(),
      isMissing: (upstream) => this.#missing.has(upstream),
      absence: (upstream) => this.#absence(upstream),
      answer: (result) => this.#answer(call, result),
    });
  }

  #named(call: Call, about: Named): CallHandle {
    const { names } = this;
    if (!names.isPrefixed) {
      const { access } = call;
      const mayAsk = ({ target }: Upstream): boolean =>
        access === undefined || accessProblem(call.request, access, target.name) === undefined;
      return this.#index.run(call, about, mayAsk, (upstream, sent) => {
        const send = (own: Call): CallHandle => {
          const isChanged = own.request !== sent.request;
          const problem = isChanged && access && accessProblem(own.request, access, upstream.target.name, about.name);
          return problem ? failCall(own, problem) : upstream.call(own);
        };
        return intercept(sent, this.#options.interceptors, send, [upstream.target]);
      });
    }
    const inward = names.inward(about.kind, about.name);
    const upstream = inward && this.upstreams.find((one) => one.target.name === inward.target);
    if (!inward || !upstream) return failCall(call, unknownName(about.kind, about.name));
    call.routed?.(upstream.target);
    const send = (own: Call): CallHandle => this.#sendNamed(own, inward.target, about);
    return intercept(call, this.#namedInterceptors, send, [upstream.target]);
  }

  /** `about` is the item as the client named it. */
  #sendNamed(call: Call, target: string, about: Named): CallHandle {
    // A reload may have replaced the upstream while the call waited.
    const upstream = this.upstreams.find((one) => one.target.name === target);
    if (!upstream) return failCall(call, unknownName(about.kind, about.name));
    if (this.#missing.has(upstream)) return this.#missing.wait(upstream, () => this.#sendNamed(call, target, about));
    return upstream.call(call);
  }

  /** Sends the request to all matching targets and fails only if all of them fail. */
  #all(call: Call, concerns: (about: ServerAbout) => boolean): CallHandle {
    const parts = this.upstreams
      .filter((upstream) => upstream.about && concerns(upstream.about))
      .map((upstream) => ({ upstream, request: call.request }));
    return requestAll(call, parts, (outcomes) => {
      const failed = outcomes.filter(({ result }) => result === undefined);
      const first = failed[0]?.failure;
      if (first && failed.length === outcomes.length) call.failed(first);
      else this.#answer(call, "{}");
    });
  }

  #listen(call: Call): CallHandle {
    const { access } = call;
    const listen = subscribeToAll(
      call,
      this.#present(),
      this.names,
      (uri, target) => access?.allows("resource", uri, target) !== false,
      (result) => this.#answer(call, result),
    );
    if (this.#missing.size > 0) this.#subscriptions.add(listen);
    return listen;
  }

  #arrived(upstream: Upstream): void {
    this.#index.clear();
    for (const listen of this.#subscriptions) listen.join(upstream);
    if (this.#missing.size === 0) this.#subscriptions.clear();
    this.#options.arrived(upstream);
  }

  #present(): readonly Upstream[] {
    return this.#missing.size === 0 ? this.upstreams : this.upstreams.filter((one) => !this.#missing.has(one));
  }

  #absence(upstream: Upstream): string {
    return this.#missing.has(upstream) ? STILL_STARTING : (upstream.lossReason ?? "is not available");
  }

  /** The capabilities of a starting target are unknown, so the merged capabilities announce list changes. */
  #capabilities(abouts: readonly { readonly about: ServerAbout }[]): Record<string, unknown> {
    const known = abouts.map(({ about }) => about.capabilities);
    return routable(mergeCapabilities(this.#missing.size === 0 ? known : [...known, CHANGING_LISTS]));
  }

  #answer(call: Call, result: string): CallHandle {
    const message = asResult(result);
    if (this.#options.protocol !== "2026") call.answered(message);
    else
      runMessageSteps(
        message,
        () => result2026(message, call.request.method, GATEWAY_INFO),
        (result) => call.answered(result),
        (failure) => call.failed(failure),
      );
    return NO_CALL;
  }
}

/** Sends names to the target without their prefix, and adds the prefix to the names in the result. */
function renamingInterceptor(names: Names): Interceptor {
  return {
    request(call) {
      const about = addressedItem(call.request);
      const inward = about && names.inward(about.kind, about.name);
      if (inward) call.request = renamedRequest(call.request, inward.name);
      return undefined;
    },
    result: ({ request, targets }, message) => renamedResult(message, request.method, names, targets[0]?.name ?? ""),
  };
}

const CHANGING_LISTS = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { listChanged: true },
};

/** Kept short because users wait for `initialize` and some clients have a short timeout for it. */
export const OPEN_WAIT_MS = 3_000;

export const STILL_STARTING = "is still starting";

export interface SlowTargetsOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The time that lists wait for starting targets, counted from the call of `open`. */
  startWaitMs(): number;
  mayProceed(): boolean;
  arrived(upstream: Upstream): void;
}

/**
 * Opens several targets without waiting long for slow ones (`failOpen`). Calls to a starting target wait for it, and
 * lists wait for at most `startWait`.
 */
export class SlowTargets {
  readonly #env: SlowTargetsOptions;
  readonly #missing = new Set<Upstream>();
  readonly #waiting = new Map<Upstream, Set<() => void>>();
  readonly #waitingLists = new Set<() => void>();
  #openedMs = 0;
  #wasReported = false;

  constructor(env: SlowTargetsOptions) {
    this.#env = env;
  }

  get size(): number {
    return this.#missing.size;
  }

  has(upstream: Upstream): boolean {
    return this.#missing.has(upstream);
  }

  /**
   * Opens all targets. Calls `done` when all outcomes are known, or after the wait time if a target succeeded and
   * `mayProceed` returns true.
   */
  open(
    upstreams: readonly Upstream[],
    done: (outcomes: ReadonlyMap<Upstream, OpenOutcome>) => void,
    wire: WireTap | undefined,
  ): void {
    const outcomes = new Map<Upstream, OpenOutcome>();
    this.#openedMs = this.#env.clock.monotonicMs();
    let isLate = false;
    let isDone = false;
    const proceed = (): void => {
      const isWhole = outcomes.size === upstreams.length;
      const isEnough = isLate && this.#env.mayProceed() && [...outcomes.values()].some(({ ok }) => ok);
      if (isDone || (!isWhole && !isEnough)) return;
      isDone = true;
      timer.cancel();
      for (const upstream of upstreams) if (!outcomes.has(upstream)) this.#missing.add(upstream);
      done(outcomes);
    };
    const timer = this.#env.clock.after(Math.min(OPEN_WAIT_MS, this.#env.startWaitMs()), () => {
      isLate = true;
      proceed();
    });
    for (const upstream of upstreams) {
      upstream.open((outcome) => {
        outcomes.set(upstream, outcome);
        if (!isDone) proceed();
        else if (this.#missing.delete(upstream)) {
          if (outcome.ok) this.#env.arrived(upstream);
          this.#settled(upstream);
        }
      }, wire);
    }
  }

  /** Calls `run` when the target is no longer starting. */
  wait(upstream: Upstream, run: () => CallHandle): CallHandle {
    const late = new LateCall();
    const go = (): void => {
      late.current = run();
    };
    const calls = this.#waiting.get(upstream) ?? new Set();
    calls.add(go);
    this.#waiting.set(upstream, calls);
    return {
      cancel: (reason) => {
        calls.delete(go);
        late.cancel(reason);
      },
    };
  }

  /**
   * Calls `run` when no target is worth waiting for or `startWait` has passed, and reports the targets that are
   * missing.
   */
  waitForAll(run: () => CallHandle): CallHandle {
    const remainingMs = this.#openedMs + this.#env.startWaitMs() - this.#env.clock.monotonicMs();
    if (remainingMs <= 0 || !this.#isWorthWaiting()) {
      this.#reportMissing();
      return run();
    }
    const late = new LateCall();
    const go = (): void => {
      timer.cancel();
      this.#waitingLists.delete(go);
      this.#reportMissing();
      late.current = run();
    };
    const timer = this.#env.clock.after(remainingMs, go);
    this.#waitingLists.add(go);
    return {
      cancel: (reason) => {
        timer.cancel();
        this.#waitingLists.delete(go);
        late.cancel(reason);
      },
    };
  }

  forget(upstreams: readonly Upstream[]): void {
    for (const upstream of upstreams) if (this.#missing.delete(upstream)) this.#settled(upstream);
  }

  #settled(upstream: Upstream): void {
    const calls = this.#waiting.get(upstream);
    this.#waiting.delete(upstream);
    for (const go of calls ?? []) go();
    if (!this.#isWorthWaiting()) for (const go of [...this.#waitingLists]) go();
  }

  /** A target that exceeded the wait before may hang, so lists do not wait for it. */
  #isWorthWaiting(): boolean {
    for (const { target } of this.#missing) if (!target.exceededStartWait) return true;
    return false;
  }

  #reportMissing(): void {
    if (this.#wasReported || this.#missing.size === 0) return;
    this.#wasReported = true;
    const seconds = Math.round(this.#env.startWaitMs() / 1000);
    for (const { target } of this.#missing) {
      const reason = `has not started within ${seconds} s (startWait), so lists omit it until it is up`;
      target.exceededStartWait = true;
      target.failures.add(reason, []);
      this.#env.logger.warn("MCP server left out of lists", { target: target.name, reason });
    }
  }
}
