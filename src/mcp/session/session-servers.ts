/**
 * The servers of one session, from its side: brought up once, changed by a reload, paused while its client is slow,
 * parked while it is away. Until they are brought up there is none.
 */
import type { McpAccess } from "../../core/facts.ts";
import type { WireTap } from "../../core/wire.ts";
import type { Names } from "../aggregation/names.ts";
import type { Router, RouterOutcome, TargetChange } from "../aggregation/router.ts";
import { type Call, refuseQuestion } from "../protocol/call.ts";
import {
  type ClientNotification,
  type ClientRequest,
  INVALID_REQUEST,
  notificationText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import type { Upstream } from "../server-side/upstream.ts";
import type { RequestCall } from "./session-call.ts";

const INITIALIZED = "notifications/initialized";
const LISTS = ["tools", "prompts", "resources"] as const;

export class SessionServers {
  #router: Router | undefined = undefined;
  #isParked = false;
  #isInitialized = false;

  /** How the client names things; undefined until there is a server. */
  get names(): Names | undefined {
    return this.#router?.names;
  }

  get all(): readonly Upstream[] {
    return this.#router?.upstreams ?? [];
  }

  open(router: Router, done: (outcome: RouterOutcome) => void, wire: WireTap | undefined): void {
    this.#router = router;
    router.open(done, wire);
  }

  /** `sent` is what servers get of the call. */
  run(call: RequestCall, sent: Call, access: McpAccess | undefined): void {
    this.#isParked = false;
    if (this.#router) call.running = this.#router.run(sent, access);
    else
      call.failed({ code: INVALID_REQUEST, status: 400, message: "Invalid Request: the session is not initialized" });
  }

  notify(message: ClientNotification, wire: WireTap | undefined): void {
    this.#isInitialized ||= message.method === INITIALIZED;
    this.#router?.notify(message, wire);
  }

  /** The client has told so, here or at another replica: servers are told once. */
  initialized(): void {
    if (this.#isInitialized) return;
    const text = notificationText(INITIALIZED, "{}");
    this.notify({ kind: "notification", text, idStart: 0, idEnd: 0, method: INITIALIZED, params: {} }, undefined);
  }

  /** It was told in an earlier process. */
  wasInitialized(): void {
    this.#isInitialized = true;
  }

  /** A request that the client has made elsewhere, for servers that know nothing of it. Resolves when it was answered. */
  repeat(request: ClientRequest): Promise<void> {
    return new Promise((resolve) => {
      if (this.#router === undefined) return resolve();
      const done = (): void => resolve();
      this.#router.run(
        { request, notified: () => undefined, asked: refuseQuestion, answered: done, failed: done },
        undefined,
      );
    });
  }

  /** What the client reads of a server's notification; undefined if nothing. */
  notificationText(upstream: Upstream, message: ServerMessage): string | undefined {
    return this.#router?.notificationText(upstream, message);
  }

  /** Other targets from now on: the servers that are left, and what the client is told. */
  change(change: TargetChange): { readonly left: readonly Upstream[]; readonly told: readonly string[] } {
    if (this.#router === undefined) return { left: [], told: [] };
    const before = this.#router.upstreams;
    const left = this.#router.change(change);
    const isSame = this.#router.upstreams === before || this.#router.upstreams.length === 0;
    return { left, told: isSame ? [] : LISTS.map(listChanged) };
  }

  /** What the client is told of a server that the session was opened without. */
  arrivalOf(upstream: Upstream): string[] {
    return LISTS.filter((kind) => upstream.about?.capabilities[kind] !== undefined).map(listChanged);
  }

  sweep(nowMs: number): void {
    for (const upstream of this.all) upstream.sweep(nowMs);
  }

  congested(isCongested: boolean): void {
    for (const upstream of this.all) {
      if (isCongested) upstream.pause();
      else upstream.resume();
    }
  }

  /** Stops what can be started again; returns what is still stopping. */
  park(): Promise<unknown>[] {
    if (this.#isParked) return [];
    this.#isParked = true;
    return this.all.flatMap((upstream) => upstream.park?.() ?? []);
  }

  /** The client is back. */
  unpark(): void {
    if (this.#isParked) for (const upstream of this.all) upstream.reconnect();
    this.#isParked = false;
  }
}

function listChanged(kind: (typeof LISTS)[number]): string {
  return notificationText(`notifications/${kind}/list_changed`, "{}");
}
