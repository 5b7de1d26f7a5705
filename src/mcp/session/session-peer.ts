/**
 * A session between its client and other replicas that hold it: what the client tells here goes there as well, what it
 * tells there is done here. Without other replicas nothing of this costs anything.
 */

import type { Clock } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import type { Call } from "../protocol/call.ts";
import type { ClientNotification, ClientRequest } from "../protocol/json-rpc.ts";
import { type PeerSession, type PeersEnv, SessionPeers } from "../replicas/session-peers.ts";
import type { RunningCalls } from "./running-calls.ts";
import type { SessionServers } from "./session-servers.ts";
import type { OtherListeners, SessionStreams } from "./session-streams.ts";

/** A server that does not answer must not hold up a session that goes on here. */
const RESTORE_MS = 5_000;

export interface PeerOrigin {
  /** How the store knows the session; undefined if it cannot go on elsewhere. */
  readonly name: string | undefined;
  /** Its client has said and set things in another process. */
  readonly wasElsewhere: boolean;
}

/** The parts of the session. */
export interface PeerParts {
  readonly servers: SessionServers;
  readonly calls: RunningCalls;
  streams(): SessionStreams;
  end(reason: string): void;
}

export class SessionPeer implements PeerSession, OtherListeners {
  readonly #origin: PeerOrigin;
  readonly #peers: SessionPeers;
  readonly #parts: PeerParts;
  readonly #clock: Clock;

  constructor(origin: PeerOrigin, env: PeersEnv, parts: PeerParts) {
    this.#origin = origin;
    this.#peers = new SessionPeers(origin.name, env);
    this.#parts = parts;
    this.#clock = env.clock;
    if (origin.wasElsewhere) parts.servers.wasInitialized();
  }

  get isShared(): boolean {
    return this.#peers.isShared;
  }

  get hasSettings(): boolean {
    return this.#peers.hasSettings;
  }

  join(): Promise<void> {
    return this.#peers.join(this);
  }

  leave(): void {
    this.#peers.leave();
  }

  /** Sets at the servers here what the client has set elsewhere before; then `done`. */
  restore(done: () => void): void {
    if (this.#origin.wasElsewhere) void this.#restored().then(done);
    else done();
  }

  /** A message of the client that wants no answer. */
  notify(message: ClientNotification, wire: WireTap | undefined): void {
    if (message.method === "notifications/cancelled") {
      if (!this.#parts.calls.cancel(message)) this.#peers.tell(message);
      return;
    }
    this.#parts.servers.notify(message, wire);
    if (this.isShared) this.#peers.tell(message);
  }

  /** What servers get of a client's call. */
  spread(call: Call): Call {
    // The client's word that it is initialized may be on its way from another replica.
    if (this.isShared && call.request.method !== "ping") this.#parts.servers.initialized();
    return this.#peers.spread(call);
  }

  // Where the client listens.

  listening(): void {
    this.#peers.listening(this);
  }

  notListening(): void {
    this.#peers.notListening();
  }

  pass(text: string): Promise<boolean> {
    return this.#peers.pass(text);
  }

  // What other replicas tell.

  toldElsewhere(message: ClientNotification): void {
    if (message.method === "notifications/cancelled") this.#parts.calls.cancel(message);
    else if (message.method === "notifications/initialized") this.#parts.servers.initialized();
    else this.#parts.servers.notify(message, undefined);
  }

  setElsewhere(request: ClientRequest): Promise<void> {
    return this.#parts.servers.repeat(request);
  }

  heardElsewhere(text: string): void {
    this.#parts.streams().general.event(text);
  }

  listensElsewhere(): void {
    this.#parts.streams().listensElsewhere();
  }

  endedElsewhere(): void {
    this.#parts.end("it was ended elsewhere");
  }

  async #restored(): Promise<void> {
    const settings = await this.#peers.before();
    if (settings.length === 0) return;
    const { servers } = this.#parts;
    await new Promise<void>((resolve) => {
      const timer = this.#clock.after(RESTORE_MS, resolve);
      void Promise.all(settings.map((request) => servers.repeat(request))).then(() => {
        timer.cancel();
        resolve();
      });
    });
  }
}
