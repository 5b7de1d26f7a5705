/**
 * A shared server for clients of the modern era: the conversion of `modern-over-legacy.ts` over a seat.
 */
import type { Clock } from "../../base/clock.ts";
import { type Call, type Question, type Running, serverFailure } from "../protocol/call.ts";
import { LATEST_LEGACY } from "../protocol/era.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { TurnRelay } from "../replicas/turn-relay.ts";
import { ModernOverLegacy } from "../server-side/modern-over-legacy.ts";
import type { Target } from "../server-side/target.ts";
import type { OpenOutcome, ServerAbout, Upstream, UpstreamUser } from "../server-side/upstream.ts";
import type { SharedSeat } from "./shared-seat.ts";
import type { SharedServer } from "./shared-server.ts";

export interface ModernSeatEnv {
  readonly clock: Clock;
  readonly relay: TurnRelay | undefined;
  token(): string;
}

export class ModernSeat implements Upstream, UpstreamUser {
  readonly #seat: SharedSeat;
  readonly #env: ModernSeatEnv;
  #legacy: ModernOverLegacy | undefined = undefined;

  constructor(server: SharedServer, env: ModernSeatEnv) {
    this.#seat = server.seat(this, LATEST_LEGACY);
    this.#env = env;
  }

  get target(): Target {
    return this.#seat.target;
  }

  get about(): ServerAbout | undefined {
    return this.#seat.about;
  }

  get pendingCalls(): number {
    return (this.#legacy?.parkedCalls ?? 0) + (this.#legacy?.hasListeners === true ? 1 : 0);
  }

  get isResting(): boolean {
    return this.#seat.isResting;
  }

  get lossReason(): string | undefined {
    return this.#seat.lossReason;
  }

  open(done: (outcome: OpenOutcome) => void): void {
    this.#seat.open((outcome) => {
      if (outcome.ok) {
        this.#legacy ??= new ModernOverLegacy(outcome.about, {
          call: (call) => this.#seat.call(call),
          nowMs: () => this.#env.clock.monotonicMs(),
          token: this.#env.token,
          relay: this.#env.relay,
        });
      }
      done(outcome);
    });
  }

  call(call: Call): Running {
    if (this.#legacy) return this.#legacy.call(call);
    call.failed(serverFailure(`target "${this.target.name}" is not ready`, "overloaded"));
    return { cancel: () => undefined };
  }

  notify(): void {
    // There is nothing that a modern client tells a server beyond its requests.
  }

  revive(): void {
    this.#seat.revive();
  }

  sweep(nowMs: number): void {
    this.#legacy?.sweep(nowMs);
  }

  pause(): void {
    this.#seat.pause();
  }

  resume(): void {
    this.#seat.resume();
  }

  close(): Promise<void> {
    this.#legacy?.close();
    return this.#seat.close();
  }

  detail(): Record<string, unknown> {
    return this.#seat.detail();
  }

  notified(_upstream: Upstream, message: ServerMessage): void {
    this.#legacy?.notified(message);
  }

  asked(_upstream: Upstream, question: Question): void {
    this.#legacy?.asked(question);
  }

  hearsQuestions(): boolean {
    return false;
  }

  lost(): void {
    this.#legacy?.endSubscriptions();
  }
}
