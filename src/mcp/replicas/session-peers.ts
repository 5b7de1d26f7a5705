/**
 * Synchronizes one session between replicas, because a load balancer may send each message of the client to another
 * replica.
 */
import type { Clock } from "../../base/clock.ts";
import type { BusChannel } from "../../store/store.ts";
import type { Interceptor } from "../protocol/call.ts";
import {
  type ClientNotification,
  type ClientRequest,
  parseClientMessage,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import type { ReplicaBus, ReplicaListener, ReplicaMessage } from "./replica-bus.ts";
import { isSetting, type SessionSettings } from "./session-settings.ts";

/** Larger messages are not sent to other replicas. */
const MAX_TOLD_CHARS = 256 * 1024;

export interface SessionReplication {
  readonly clock: Clock;
  readonly bus: ReplicaBus;
  readonly settings: SessionSettings;
  expiresAtMs(): number;
}

export interface PeerSession {
  remoteNotification(message: ClientNotification): void;
  remoteSetting(request: ClientRequest): Promise<void>;
  remoteServerMessage(text: string): void;
  remoteStreamOpened(): void;
  remoteEnd(): void;
}

export class SessionPeers {
  readonly #name: string | undefined;
  readonly #env: SessionReplication;
  readonly #session: PeerSession;
  #channel: BusChannel | undefined = undefined;
  #listening: BusChannel | undefined = undefined;
  #hasSettings = false;

  /** Without a name, no other process can resume the session. */
  constructor(name: string | undefined, env: SessionReplication, session: PeerSession) {
    this.#name = name;
    this.#env = env;
    this.#session = session;
  }

  get isShared(): boolean {
    return this.#name !== undefined && this.#env.bus.isThere;
  }

  get hasSettings(): boolean {
    return this.#hasSettings;
  }

  async join(): Promise<void> {
    if (this.#name === undefined || this.#channel !== undefined) return;
    this.#channel = this.#env.bus.listen(sessionChannel(this.#name), follower(this.#session));
    await this.#channel?.ready;
  }

  leave(): void {
    this.#channel?.close();
    this.notListening();
  }

  async storedSettings(): Promise<readonly ClientRequest[]> {
    if (this.#name === undefined) return [];
    const settings = await this.#env.settings.of(this.#name);
    this.#hasSettings = settings.length > 0;
    return settings;
  }

  broadcast(message: ClientNotification): void {
    if (this.#name !== undefined) notifyReplicas(this.#env.bus, this.#name, message);
  }

  /**
   * Delays a successful response to a call that changes a setting until the setting is stored and sent to the other
   * replicas.
   */
  readonly settings: Interceptor = {
    result: ({ client }, message) => {
      const name = this.#name;
      if (name === undefined || client.isRepeated === true || !isSetting(client.request.method)) return undefined;
      const pass = (): ServerMessage => message;
      return this.#set(name, client.request).then(pass, pass);
    },
  };

  listening(): void {
    const name = this.#name;
    if (name === undefined || this.#listening !== undefined) return;
    this.#listening = this.#env.bus.listen(listenerChannel(name), follower(this.#session));
    // Notifies other replicas, so that they send the messages that they could not deliver.
    void this.#listening?.ready.then(() => this.#env.bus.send(sessionChannel(name), { kind: "listening" }));
  }

  notListening(): void {
    this.#listening?.close();
    this.#listening = undefined;
  }

  /** Sends a message to the replica with the client's stream. Resolves with false if no replica received it. */
  async deliver(text: string): Promise<boolean> {
    if (this.#name === undefined || text.length > MAX_TOLD_CHARS) return false;
    return (await this.#env.bus.send(listenerChannel(this.#name), { kind: "event", text })) > 0;
  }

  async #set(name: string, request: ClientRequest): Promise<void> {
    this.#hasSettings = true;
    await this.#env.settings.add(name, request, this.#env.expiresAtMs());
    if (request.text.length <= MAX_TOLD_CHARS)
      await this.#env.bus.ask(sessionChannel(name), { kind: "set", text: request.text });
  }
}

export function notifyReplicas(bus: ReplicaBus, name: string, { text }: ClientNotification): void {
  if (bus.isThere && text.length <= MAX_TOLD_CHARS) void bus.send(sessionChannel(name), { kind: "told", text });
}

export function endSession(bus: ReplicaBus, name: string): void {
  if (bus.isThere) void bus.send(sessionChannel(name), { kind: "ended" });
}

function follower(session: PeerSession): ReplicaListener {
  return ({ kind, text = "" }: ReplicaMessage) => {
    switch (kind) {
      case "ended":
        return session.remoteEnd();
      case "event":
        return session.remoteServerMessage(text);
      case "listening":
        return session.remoteStreamOpened();
      case "told": {
        const message = parseClientMessage(text);
        return message.kind === "notification" ? session.remoteNotification(message) : undefined;
      }
      case "set": {
        const message = parseClientMessage(text);
        return message.kind === "request" ? session.remoteSetting(message) : undefined;
      }
      default:
        // A newer version may send other kinds.
        return undefined;
    }
  };
}

function sessionChannel(name: string): string {
  return `session/${name}`;
}

function listenerChannel(name: string): string {
  return `listener/${name}`;
}
