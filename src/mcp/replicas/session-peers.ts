/**
 * One session, as other replicas that hold it too are told of it: behind a load balancer each message of its client may
 * reach any of them. What the client has set is set everywhere before it is answered; what it tells reaches all; what servers
 * tell it reaches the replica that it listens to.
 */
import type { Clock } from "../../base/clock.ts";
import type { BusChannel } from "../../store/store.ts";
import { type Call, withAnswer } from "../protocol/call.ts";
import { type ClientNotification, type ClientRequest, parseClientMessage } from "../protocol/json-rpc.ts";
import type { Heard, ReplicaBus, ReplicaMessage } from "./replica-bus.ts";
import { isSetting, type SessionSettings } from "./session-settings.ts";

/** The rest of what clients tell is small: a reason, a place, a progress. */
const MAX_TOLD_CHARS = 256 * 1024;

export interface SessionReplication {
  readonly clock: Clock;
  readonly bus: ReplicaBus;
  readonly settings: SessionSettings;
  /** When what is kept of a session that is used now may be forgotten. */
  expiresAtMs(): number;
}

/** The session, as far as others reach it. */
export interface PeerSession {
  /** Its client has told another replica. */
  toldElsewhere(message: ClientNotification): void;
  /** Its client has set it at another replica. Resolves when the servers here know it. */
  setElsewhere(request: ClientRequest): Promise<void>;
  /** A server at another replica has something for whoever listens. */
  heardElsewhere(text: string): void;
  /** Its client has begun to listen to another replica. */
  listensElsewhere(): void;
  endedElsewhere(): void;
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

  /** Others may hold the session too. */
  get isShared(): boolean {
    return this.#name !== undefined && this.#env.bus.isThere;
  }

  /** Whether there is anything in the store to be kept alive. */
  get hasSettings(): boolean {
    return this.#hasSettings;
  }

  /** Resolves when everything that others tell from now on is heard. */
  async join(): Promise<void> {
    if (this.#name === undefined || this.#channel !== undefined) return;
    this.#channel = this.#env.bus.listen(channelOf(this.#name), follower(this.#session));
    await this.#channel?.ready;
  }

  leave(): void {
    this.#channel?.close();
    this.notListening();
  }

  /** What the client had set before this process got the session. */
  async before(): Promise<readonly ClientRequest[]> {
    if (this.#name === undefined) return [];
    const settings = await this.#env.settings.of(this.#name);
    this.#hasSettings = settings.length > 0;
    return settings;
  }

  tell(message: ClientNotification): void {
    if (this.#name !== undefined) tellSession(this.#env.bus, this.#name, message);
  }

  /** A call that may set something: its answer waits until all who hold the session know it. */
  spread(call: Call): Call {
    const name = this.#name;
    if (name === undefined || !isSetting(call.request.method)) return call;
    const { request } = call;
    return {
      ...withAnswer(call, (message) => message),
      answered: (message) => {
        if (message.kind !== "result") call.answered(message);
        else void this.#set(name, request).finally(() => call.answered(message));
      },
    };
  }

  /** The client listens here. */
  listening(): void {
    const name = this.#name;
    if (name === undefined || this.#listening !== undefined) return;
    this.#listening = this.#env.bus.listen(listenersOf(name), follower(this.#session));
    // What others could not tell anybody until now comes after this.
    void this.#listening?.ready.then(() => this.#env.bus.send(channelOf(name), { kind: "listening" }));
  }

  notListening(): void {
    this.#listening?.close();
    this.#listening = undefined;
  }

  /** Resolves with whether the client listens to another replica, which passes it on. */
  async pass(text: string): Promise<boolean> {
    if (this.#name === undefined || text.length > MAX_TOLD_CHARS) return false;
    return (await this.#env.bus.send(listenersOf(this.#name), { kind: "event", text })) > 0;
  }

  async #set(name: string, request: ClientRequest): Promise<void> {
    this.#hasSettings = true;
    await this.#env.settings.add(name, request, this.#env.expiresAtMs());
    if (request.text.length <= MAX_TOLD_CHARS)
      await this.#env.bus.ask(channelOf(name), { kind: "set", text: request.text });
  }
}

/** A client has told something to a replica that may not hold its session. */
export function tellSession(bus: ReplicaBus, name: string, { text }: ClientNotification): void {
  if (bus.isThere && text.length <= MAX_TOLD_CHARS) void bus.send(channelOf(name), { kind: "told", text });
}

/** A session was ended at a replica that may not hold it. */
export function endSession(bus: ReplicaBus, name: string): void {
  if (bus.isThere) void bus.send(channelOf(name), { kind: "ended" });
}

function follower(session: PeerSession): Heard {
  return ({ kind, text = "" }: ReplicaMessage) => {
    switch (kind) {
      case "ended":
        return session.endedElsewhere();
      case "event":
        return session.heardElsewhere(text);
      case "listening":
        return session.listensElsewhere();
      case "told": {
        const message = parseClientMessage(text);
        return message.kind === "notification" ? session.toldElsewhere(message) : undefined;
      }
      case "set": {
        const message = parseClientMessage(text);
        return message.kind === "request" ? session.setElsewhere(message) : undefined;
      }
      default:
        // A newer release may say more.
        return undefined;
    }
  };
}

function channelOf(name: string): string {
  return `session/${name}`;
}

function listenersOf(name: string): string {
  return `listener/${name}`;
}
