/**
 * Sessions of the legacy era that another process opened: before a restart, or beside this one. Whoever shows an id that
 * the gateway signed goes on here: the servers are brought up and the handshake is repeated in the client's words.
 */
import type { HeaderList } from "../http/headers.ts";
import type { Router } from "./aggregation/router.ts";
import type { Failure } from "./protocol/call.ts";
import {
  asClientRequest,
  type ClientNotification,
  type ClientRequest,
  type ClientResponse,
} from "./protocol/json-rpc.ts";
import { tellSession } from "./replicas/session-peers.ts";
import { bare } from "./router-factory.ts";
import { LegacyUpstream } from "./server-side/legacy-upstream.ts";
import type { Session } from "./session/session.ts";
import { resumeSession } from "./session/session-opening.ts";
import type { SessionRecords } from "./session/session-records.ts";
import type { SessionClient, SessionStore } from "./session/session-store.ts";

/** A failure of servers is no end: the next request tries again. */
export type ResumeOutcome = "resumed" | "unknown" | Failure;

/** What a client says without wanting an answer. */
type Told = ClientNotification | ClientResponse;

export interface ResumptionEnv {
  readonly sessions: SessionStore;
  readonly records: SessionRecords;
  router(session: Session, initialize: ClientRequest, headers: HeaderList): Router;
}

export class Resumption {
  readonly #env: ResumptionEnv;
  /** By owner and id: several requests of a client may come at once. */
  readonly #underWay = new Map<string, Promise<ResumeOutcome>>();

  constructor(env: ResumptionEnv) {
    this.#env = env;
  }

  /** Brings up a session that this process does not hold. Rejects with `overloaded`. */
  resume(id: string, client: SessionClient, headers: HeaderList): Promise<ResumeOutcome> {
    const key = JSON.stringify([client.owner ?? null, id]);
    const known = this.#underWay.get(key);
    if (known !== undefined) return known;
    const resuming = this.#resume(id, client, headers).finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, resuming);
    return resuming;
  }

  /** A client tells something to a session that this process does not hold. False if there is none. */
  async tell(id: string, owner: string | undefined, messages: readonly Told[]): Promise<boolean> {
    const { records } = this.#env;
    const known = await records.find(id, owner);
    if (known === undefined) return false;
    for (const message of messages) {
      if (message.kind === "response") records.answers.leave(known.record, message);
      else tellSession(records.peers.bus, known.record.name, message);
    }
    return true;
  }

  /** The client ends a session that this process does not hold. False if there is none. */
  async end(id: string, owner: string | undefined): Promise<boolean> {
    const known = await this.#env.records.find(id, owner);
    if (known) this.#env.records.end(known.record);
    return known !== undefined;
  }

  async #resume(id: string, client: SessionClient, headers: HeaderList): Promise<ResumeOutcome> {
    const { sessions, records } = this.#env;
    const known = await records.find(id, client.owner);
    if (known === undefined) return "unknown";
    const session = sessions.adopt(id, known, client);
    const router = this.#env.router(session, asClientRequest("initialize", known.params), headers);
    // The client has said long ago that it is initialized.
    for (const upstream of router.upstreams.map(bare)) if (upstream instanceof LegacyUpstream) upstream.join(undefined);
    // Nothing that its client sets elsewhere from now on is missed; what it has set before is in the store.
    await session.peer.join();
    const failure = await resumeSession(session, router);
    if (failure !== undefined) return failure;
    // What the client was told at first holds for the whole session.
    const told = headers.get("mcp-protocol-version");
    if (told === undefined || told === session.version) return "resumed";
    session.end(`its servers speak ${session.version} now, and its client ${told.slice(0, 40)}`);
    return "unknown";
  }
}
