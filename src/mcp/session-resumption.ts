/**
 * Resumes 2025 sessions from their records, for example after a restart or on another replica.
 */

import type { Exchange } from "../core/exchange.ts";
import type { HeaderList } from "../http/headers.ts";
import { type ClientAction, isBatch, RequestRejection } from "./client-side/http-request.ts";
import { type Failure, failureHeaders } from "./protocol/call.ts";
import {
  asClientRequest,
  type ClientMessage,
  type ClientNotification,
  type ClientResponse,
} from "./protocol/json-rpc.ts";
import { notifyReplicas } from "./replicas/session-peers.ts";
import { type RouterFactory, unwrapUpstream } from "./router-factory.ts";
import { Upstream2025 } from "./server-side/upstream-2025.ts";
import type { SessionRecords } from "./session/session-records.ts";
import type { SessionClient, SessionStore } from "./session/session-store.ts";

/** After a `Failure`, the session is still valid. */
type ResumeOutcome = "resumed" | "unknown" | Failure;

export class SessionResumption {
  readonly #sessions: SessionStore;
  readonly #records: SessionRecords;
  readonly #routers: RouterFactory;
  /** The key contains the owner and the session id. Concurrent requests of one client wait for the same attempt. */
  readonly #pending = new Map<string, Promise<ResumeOutcome>>();

  constructor(sessions: SessionStore, records: SessionRecords, routers: RouterFactory) {
    this.#sessions = sessions;
    this.#records = records;
    this.#routers = routers;
  }

  /**
   * Resolves with the action that replaces the requested one, or with undefined if the caller determines the action.
   */
  async prepare(
    exchange: Exchange,
    id: string,
    client: SessionClient,
    parsed: ClientMessage | readonly ClientMessage[] | undefined,
  ): Promise<ClientAction | undefined> {
    const { method, headers } = exchange.request;
    if (method === "DELETE") return (await this.#end(id, client.owner)) ? { kind: "endedElsewhere" } : undefined;
    const messages = parsed === undefined ? [] : isBatch(parsed) ? parsed : [parsed];
    const requests = messages.filter((message) => message.kind === "request");
    if (method === "POST" && requests.length === 0) {
      // The messages may be about a request that waits for the same resumption, such as its cancellation.
      if ((await this.#pending.get(pendingKey(id, client))) === "resumed") return undefined;
      const notes = messages.filter((message) => message.kind !== "request");
      return (await this.#forward(id, client.owner, notes)) ? { kind: "ignored" } : undefined;
    }
    // A second handshake is rejected in any process.
    if (requests.some((request) => request.method === "initialize")) return undefined;
    const outcome = await this.#resumeOnce(id, client, headers);
    if (typeof outcome === "string") return undefined;
    throw new RequestRejection(outcome.status, outcome.code, outcome.message, {
      id: requests[0]?.id,
      headers: failureHeaders(outcome),
      failure: outcome.error === "overloaded" ? "overloaded" : "backend_unavailable",
    });
  }

  #resumeOnce(id: string, client: SessionClient, headers: HeaderList): Promise<ResumeOutcome> {
    const key = pendingKey(id, client);
    const pending = this.#pending.get(key);
    if (pending !== undefined) return pending;
    const resuming = this.#resume(id, client, headers).finally(() => this.#pending.delete(key));
    this.#pending.set(key, resuming);
    return resuming;
  }

  /**
   * Forwards messages that expect no response to the replicas with the session. Resolves with false if the owner has no
   * such session.
   */
  async #forward(
    id: string,
    owner: string | undefined,
    messages: readonly (ClientNotification | ClientResponse)[],
  ): Promise<boolean> {
    const known = await this.#records.find(id, owner);
    if (known === undefined) return false;
    for (const message of messages) {
      if (message.kind === "response") this.#records.answers.forward(known.record, message);
      else notifyReplicas(this.#records.replication.bus, known.record.name, message);
    }
    return true;
  }

  async #end(id: string, owner: string | undefined): Promise<boolean> {
    const known = await this.#records.find(id, owner);
    if (known) this.#records.end(known.record);
    return known !== undefined;
  }

  async #resume(id: string, client: SessionClient, headers: HeaderList): Promise<ResumeOutcome> {
    const known = await this.#records.find(id, client.owner);
    if (known === undefined) return "unknown";
    const session = this.#sessions.adopt(id, known, client);
    const request = asClientRequest("initialize", known.params);
    const router = this.#routers.for2025(session, request, headers);
    // The client is assumed to have sent `notifications/initialized` before.
    for (const upstream of router.upstreams.map(unwrapUpstream))
      if (upstream instanceof Upstream2025) upstream.join(undefined);
    // The session subscribes before it reads the stored settings, so that it misses no change from another replica.
    await session.joinReplicas();
    const failure = await session.resume(router, request);
    if (failure !== undefined) return failure;
    // The negotiated version must not change during a session.
    const version = headers.get("mcp-protocol-version");
    if (version === undefined || version === session.version) return "resumed";
    session.end(`its servers now speak ${session.version}, but its client speaks ${version.slice(0, 40)}`);
    return "unknown";
  }
}

function pendingKey(id: string, { owner }: SessionClient): string {
  return JSON.stringify([owner ?? null, id]);
}
