/**
 * A shared server as one session sees it: it opens, calls and leaves like a server of its own, and hears only what
 * is for everybody.
 */
import type { WireTap } from "../../core/wire.ts";
import { find } from "../../json/json-text.ts";
import type { Call, Running } from "../protocol/call.ts";
import { type ClientNotification, edited, type ServerMessage } from "../protocol/json-rpc.ts";
import type { Loss } from "../server-side/link-contract.ts";
import type { Target } from "../server-side/target.ts";
import type { OpenOutcome, ServerAbout, Upstream, UpstreamUser } from "../server-side/upstream.ts";
import { lowestVersion, routable } from "./merge.ts";

/** The server, as its seats need it. */
export interface SeatedServer {
  readonly target: Target;
  readonly about: ServerAbout | undefined;
  readonly isResting: boolean;
  readonly lossReason: string | undefined;
  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void;
  call(seat: SharedSeat, call: Call): Running;
  leave(seat: SharedSeat): void;
  revive(): void;
}

export class SharedSeat implements Upstream {
  readonly uris = new Set<string>();
  readonly #server: SeatedServer;
  readonly #user: UpstreamUser;
  readonly #version: string;

  constructor(server: SeatedServer, user: UpstreamUser, version: string) {
    this.#server = server;
    this.#user = user;
    this.#version = version;
  }

  get target(): Target {
    return this.#server.target;
  }

  get about(): ServerAbout | undefined {
    return this.#server.about;
  }

  get pendingCalls(): number {
    return 0;
  }

  get isResting(): boolean {
    return this.#server.isResting;
  }

  get lossReason(): string | undefined {
    return this.#server.lossReason;
  }

  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void {
    this.#server.open((outcome) => done(outcome.ok ? this.#negotiated(outcome.answer, outcome.about) : outcome), wire);
  }

  call(call: Call): Running {
    return this.#server.call(this, call);
  }

  notify(_message: ClientNotification): void {
    // The server's client is the gateway: what one of many clients did is not told.
  }

  revive(): void {
    this.#server.revive();
  }

  sweep(): void {
    // The server is swept as a tenant of its own.
  }

  pause(): void {
    // Others use it too: a slow client is cut off instead.
  }

  resume(): void {
    // See `pause`.
  }

  close(): Promise<void> {
    this.#server.leave(this);
    return Promise.resolve();
  }

  detail(): Record<string, unknown> {
    return { target: this.target.name, shared: true };
  }

  hear(message: ServerMessage): void {
    this.#user.notified(this, message);
  }

  heardOfLoss(loss: Loss): void {
    this.#user.lost(this, loss);
  }

  /** The server was asked once, for the newest revision; an older client is told its own. */
  #negotiated(answer: ServerMessage, about: ServerAbout): OpenOutcome {
    const protocolVersion = lowestVersion([about.protocolVersion, this.#version]);
    const capabilities = routable(about.capabilities);
    const version = find(answer.text, 0, "result", "protocolVersion");
    const abilities = find(answer.text, 0, "result", "capabilities");
    const changed = edited(answer, [
      ...(version ? [{ ...version, text: JSON.stringify(protocolVersion) }] : []),
      ...(abilities ? [{ ...abilities, text: JSON.stringify(capabilities) }] : []),
    ]);
    return { ok: true, answer: changed, about: { ...about, protocolVersion, capabilities } };
  }
}
