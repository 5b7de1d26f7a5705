/**
 * One process or connection for all sessions of a target (`shared: true`). The gateway itself is the server's
 * client: it initializes it once, without any abilities of a client's own, so that the server has nothing to ask;
 * every call runs under an id of ours. What a server says without saying to whom is for everybody only if it is
 * the same for everybody (a list changed); a log line is nobody's.
 */

import type { WireTap } from "../../core/wire.ts";
import { find, slice } from "../../json/json-text.ts";
import { unknownMethod } from "../protocol/access.ts";
import { type Call, NOTHING_RUNS, type Question, type Running } from "../protocol/call.ts";
import { LATEST_LEGACY } from "../protocol/era.ts";
import {
  asClientRequest,
  asServerMessage,
  type ClientNotification,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { LegacyUpstream } from "../server-side/legacy-upstream.ts";
import type { LinkEnv, Loss } from "../server-side/link-contract.ts";
import type { Target } from "../server-side/target.ts";
import type { Tenant } from "../server-side/tenant.ts";
import type { OpenOutcome, ServerAbout, Upstream, UpstreamUser } from "../server-side/upstream.ts";
import { GATEWAY_INFO } from "./merge.ts";
import { type SeatedServer, SharedSeat } from "./shared-seat.ts";

export interface SharedServerEnv {
  readonly link: LinkEnv;
  nowMs(): number;
  ended(server: SharedServer, reason: string): void;
}

export class SharedServer implements UpstreamUser, Tenant, SeatedServer {
  readonly target: Target;
  lastUsedMs: number;
  readonly #env: SharedServerEnv;
  readonly #upstream: LegacyUpstream;
  readonly #seats = new Set<SharedSeat>();
  #state: "new" | "opening" | "open" = "new";
  #outcome: OpenOutcome | undefined = undefined;
  #waiting: ((outcome: OpenOutcome) => void)[] = [];
  /** How many seats want each resource. */
  readonly #uris = new Map<string, number>();

  constructor(target: Target, env: SharedServerEnv) {
    this.target = target;
    this.#env = env;
    this.lastUsedMs = env.nowMs();
    const params = { protocolVersion: LATEST_LEGACY, capabilities: {}, clientInfo: GATEWAY_INFO };
    this.#upstream = new LegacyUpstream(
      target,
      env.link,
      asClientRequest("initialize", JSON.stringify(params)),
      this,
      undefined,
    );
  }

  get about(): ServerAbout | undefined {
    return this.#upstream.about;
  }

  get upstreams(): readonly Upstream[] {
    return [this.#upstream];
  }

  get isIdle(): boolean {
    return this.#seats.size === 0 && this.#upstream.pendingCalls === 0;
  }

  get isResting(): boolean {
    return this.#upstream.isResting;
  }

  get lossReason(): string | undefined {
    return this.#upstream.lossReason;
  }

  /** A place at this server; `version` is what its client asked for. */
  seat(user: UpstreamUser, version: string): SharedSeat {
    const seat = new SharedSeat(this, user, version);
    this.#seats.add(seat);
    return seat;
  }

  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void {
    if (this.#state === "open" && this.#outcome) {
      done(this.#outcome);
      return;
    }
    this.#waiting.push(done);
    if (this.#state === "opening") return;
    this.#state = "opening";
    this.#upstream.open((outcome) => {
      this.#state = outcome.ok ? "open" : "new";
      this.#outcome = outcome;
      if (outcome.ok) this.#upstream.notify(INITIALIZED);
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const one of waiting) one(outcome);
    }, wire);
  }

  call(seat: SharedSeat, call: Call): Running {
    this.lastUsedMs = this.#env.nowMs();
    const { method, params } = call.request;
    if (method === "resources/subscribe" || method === "resources/unsubscribe")
      return this.#subscription(seat, call, String(params.uri), method === "resources/subscribe");
    // Tasks are the connection's, and so everybody's: one client would list and read those of another.
    if (method.startsWith("tasks/")) {
      call.failed(unknownMethod(method));
      return NOTHING_RUNS;
    }
    // A level for all would be set by one for the others.
    if (method === "logging/setLevel") return answerEmpty(call);
    return this.#upstream.call({
      request: call.request,
      headers: call.headers,
      wire: call.wire,
      notified: (message) => {
        if (message.method === "notifications/progress") call.notified(message);
      },
      asked: refuse,
      answered: (message) => call.answered(message),
      failed: (failure) => call.failed(failure),
    });
  }

  leave(seat: SharedSeat): void {
    if (!this.#seats.delete(seat)) return;
    for (const uri of seat.uris) this.#count(uri, -1);
    this.lastUsedMs = this.#env.nowMs();
  }

  revive(): void {
    this.#upstream.revive();
  }

  sweep(nowMs: number): void {
    this.#upstream.sweep(nowMs);
  }

  end(reason: string): void {
    this.#env.ended(this, reason);
  }

  detail(): Record<string, unknown> {
    return { seats: this.#seats.size, ...this.#upstream.detail() };
  }

  // What the server reports beyond calls.

  notified(_upstream: Upstream, message: ServerMessage): void {
    const isUpdate = message.method === "notifications/resources/updated";
    if (!isUpdate && message.method?.endsWith("/list_changed") !== true) return;
    const uri = isUpdate ? find(message.text, 0, "params", "uri") : undefined;
    const name = uri && String(JSON.parse(slice(message.text, uri)));
    for (const seat of this.#seats) if (!isUpdate || (name !== undefined && seat.uris.has(name))) seat.hear(message);
  }

  asked(_upstream: Upstream, question: Question): void {
    refuse(question);
  }

  hearsQuestions(): boolean {
    return true;
  }

  lost(_upstream: Upstream, loss: Loss): void {
    for (const seat of this.#seats) seat.heardOfLoss(loss);
  }

  #subscription(seat: SharedSeat, call: Call, uri: string, isOn: boolean): Running {
    if (seat.uris.has(uri) !== isOn) {
      if (isOn) seat.uris.add(uri);
      else seat.uris.delete(uri);
      this.#count(uri, isOn ? 1 : -1);
    }
    return answerEmpty(call);
  }

  #count(uri: string, change: number): void {
    const before = this.#uris.get(uri) ?? 0;
    const after = before + change;
    if (after <= 0) this.#uris.delete(uri);
    else this.#uris.set(uri, after);
    if ((before === 0) === after <= 0) return;
    const request = asClientRequest(
      after > 0 ? "resources/subscribe" : "resources/unsubscribe",
      JSON.stringify({ uri }),
    );
    this.#upstream.call({
      request,
      notified: () => undefined,
      asked: refuse,
      answered: () => undefined,
      failed: () => undefined,
    });
  }
}

const INITIALIZED: ClientNotification = {
  kind: "notification",
  method: "notifications/initialized",
  params: {},
  text: '{"jsonrpc":"2.0","method":"notifications/initialized"}',
  idStart: 0,
  idEnd: 0,
};

function refuse(question: Question): void {
  question.answer('"error":{"code":-32601,"message":"A shared server cannot ask a client"}');
}

function answerEmpty(call: Call): Running {
  call.answered(asServerMessage(resultText("0", "{}")));
  return { cancel: () => undefined };
}
