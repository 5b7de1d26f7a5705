/**
 * Holds the servers of 2026-07-28 clients, which have no sessions. Requests with the same client identity
 * share a group.
 */

import { createHash } from "node:crypto";
import type { Exchange } from "../../core/exchange.ts";
import { shownPrincipal } from "../../core/principal.ts";
import type { Router } from "../aggregation/router.ts";
import { type Call, type CallHandle, failCall, LateCall, type Question, serverFailure } from "../protocol/call.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { Upstream, UpstreamHolder, UpstreamListener } from "../server-side/upstream.ts";

export interface ClientGroupHost {
  nowMs(): number;
  ended(group: ClientGroup, reason: string): void;
}

const REMOVED = "its servers were removed from the configuration";

interface Waiting {
  readonly call: Call;
  readonly handle: LateCall;
}

export class ClientGroup implements UpstreamListener, UpstreamHolder {
  readonly owner: string;
  readonly client: string;
  lastUsedMs: number;
  readonly #env: ClientGroupHost;
  #router: Router | undefined = undefined;
  #state: "opening" | "open" | "ended" = "opening";
  #waiting: Waiting[] = [];
  #underWay = 0;
  #isRetiring = false;
  #keepsSuspended = false;

  constructor(owner: string, client: string, env: ClientGroupHost) {
    this.owner = owner;
    this.client = client;
    this.#env = env;
    this.lastUsedMs = env.nowMs();
  }

  get upstreams(): readonly Upstream[] {
    return this.#router?.upstreams ?? [];
  }

  get isIdle(): boolean {
    return (
      this.#state === "open" && this.#underWay === 0 && this.upstreams.every((upstream) => upstream.pendingCalls === 0)
    );
  }

  open(router: Router, opened: () => void): void {
    this.#router = router;
    router.open((outcome) => {
      if (this.#state !== "opening") return;
      const waiting = this.#waiting;
      this.#waiting = [];
      if (outcome.ok) {
        this.#state = "open";
        opened();
        for (const { call, handle } of waiting) if (!handle.isCancelled) handle.current = router.run(call);
        return;
      }
      this.end(outcome.reason);
      for (const { call, handle } of waiting)
        if (!handle.isCancelled) call.failed({ ...outcome.failure, message: outcome.reason });
    });
  }

  run(call: Call): CallHandle {
    this.lastUsedMs = this.#env.nowMs();
    if (this.#state === "open" && this.#router) return this.#router.run(call);
    if (this.#state === "ended") return failCall(call, serverFailure("the server was stopped", "overloaded"));
    const handle = new LateCall();
    this.#waiting.push({ call, handle });
    return handle;
  }

  count(change: 1 | -1): void {
    this.#underWay += change;
    this.lastUsedMs = this.#env.nowMs();
    this.#endIfRetired();
  }

  /**
   * Ends the group after its running requests and, with `keepsSuspended`, the calls that wait for input. The caller must
   * not send new ones.
   */
  retire(keepsSuspended: boolean): void {
    this.#isRetiring = true;
    this.#keepsSuspended = keepsSuspended;
    this.#endIfRetired();
  }

  sweep(nowMs: number): void {
    for (const upstream of this.upstreams) upstream.sweep(nowMs);
    this.#endIfRetired();
  }

  #endIfRetired(): void {
    if (!this.#isRetiring || this.#underWay > 0) return;
    if (!this.#keepsSuspended || this.#state === "opening" || this.isIdle) this.end(REMOVED);
  }

  end(reason: string): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#env.ended(this, reason);
  }

  detail(): Record<string, unknown> {
    return {
      owner: shownPrincipal(this.owner),
      idleMs: Math.round(this.#env.nowMs() - this.lastUsedMs),
      pendingCalls: this.#underWay,
      targets: this.upstreams.map((upstream) => upstream.detail()),
    };
  }

  notified(_upstream: Upstream, _message: ServerMessage): void {
    // Subscriptions are calls, so a notification outside of a call was not requested.
  }

  asked(_upstream: Upstream, question: Question): void {
    question.answer('"error":{"code":-32601,"message":"The client cannot be asked"}');
  }

  canDeliverQuestions(): boolean {
    return false;
  }

  lost(): void {
    // The pending calls have failed, and the next call reconnects.
  }
}

export function sessionOwner(exchange: Exchange): string | undefined {
  return exchange.identity.principal;
}

/**
 * Identifies the client of a request without a session. A client without a principal is identified by its address, its
 * `authorization` header, and the client headers that targets forward.
 */
export function clientGroupOwner(exchange: Exchange, headers: readonly string[]): string {
  if (exchange.identity.principal !== undefined) return exchange.identity.principal;
  const { clientAddress, request } = exchange;
  const names = [...new Set(["authorization", ...headers])].sort();
  const shown = names.map((name) => request.headers.get(name) ?? null);
  const credential = shown.every((value) => value === null) ? "" : ` ${digest(JSON.stringify(shown))}`;
  return `address:${clientAddress}${credential}`;
}

export function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}
