/**
 * Manages the records of live sessions in the store. A record expires with the idle timeout of its session and contains
 * `initialize` parameters that do not fit into the id.
 */

import { deflateRawSync } from "node:zlib";
import type { Clock } from "../../base/clock.ts";
import { decompress } from "../../base/decompress.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Logger } from "../../record/log/logger.ts";
import type { OwnedStore } from "../../store/owned-store.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import { type Store, StoreUnavailable } from "../../store/store.ts";
import { ReplicaBus } from "../replicas/replica-bus.ts";
import { endSession, type SessionReplication } from "../replicas/session-peers.ts";
import { SessionSettings } from "../replicas/session-settings.ts";
import { ForwardedAnswers } from "./client-questions.ts";

/** Limits how long an id is valid if no shared record exists or the store is unavailable. */
const UNRECORDED_MS = 7 * 24 * 3_600_000;
/** Sessions that ended here are remembered for times in which the store is unavailable. */
const KEPT_ENDED = 10_000;
const ALIVE = "1";
const ENDED = "0";

export interface SessionRecord {
  readonly name: string;
  /** Contains the `initialize` parameters if they do not fit into the session id. Otherwise it is `ALIVE`. */
  readonly value: string;
}

export interface KnownSession {
  readonly record: SessionRecord;
  readonly params: string;
}

export interface SessionRecordsOptions {
  readonly backend: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: OwnedStore;
  readonly key: SigningKey;
  idleTtlMs(): number;
}

export class SessionRecords {
  readonly #env: SessionRecordsOptions;
  readonly #store: Store;
  /** The records of sessions that began while the store was unavailable. */
  readonly #unstored = new WeakSet<SessionRecord>();
  /** The names of sessions that ended in this process, the oldest first. */
  readonly #ended = new Set<string>();
  readonly answers: ForwardedAnswers;
  readonly replication: SessionReplication;

  constructor(env: SessionRecordsOptions) {
    this.#env = env;
    this.answers = new ForwardedAnswers(env);
    this.replication = {
      clock: env.clock,
      bus: new ReplicaBus(env),
      settings: new SessionSettings(env),
      expiresAtMs: () => this.#expiry(0).expiresAtMs,
    };
    this.#store = env.store.at("mcp-sessions");
  }

  /** Creates the id and the record of a new session. `name` must be unguessable. */
  issue(name: string, params: string, owner: string | undefined): { id: string; record: SessionRecord } {
    const { clock, key, backend } = this.#env;
    const isInside = fitsInside(params);
    const identity = { name, issuedAtMs: clock.now(), params: isInside ? params : undefined };
    return { id: sessionId(key, identity, { backend, owner }), record: { name, value: isInside ? ALIVE : params } };
  }

  begin(record: SessionRecord): void {
    const { name, value } = record;
    this.#quietly(
      this.#store.set(name, value, this.#expiry(0)).catch((error: unknown) => {
        this.#unstored.add(record);
        throw error;
      }),
    );
  }

  /**
   * Extends the record of a session that was used `agoMs` ago. Resolves with false if Redis no longer has the record.
   */
  async touch(record: SessionRecord, agoMs: number, hasSettings: boolean): Promise<boolean> {
    const { name, value } = record;
    try {
      if (hasSettings) this.replication.settings.touch(name, this.#expiry(agoMs).expiresAtMs);
      if (await this.#store.replace(name, value, value, this.#expiry(agoMs))) return true;
      if (this.#store.kind === "redis" && !this.#unstored.has(record)) return false;
      // Other stores may have lost the record, and Redis does not have it if it was unavailable at the start.
      await this.#store.set(name, value, this.#expiry(agoMs));
      this.#unstored.delete(record);
      return true;
    } catch {
      return true;
    }
  }

  end({ name }: SessionRecord): void {
    this.#ended.add(name);
    for (const oldest of this.#ended) {
      if (this.#ended.size <= KEPT_ENDED) break;
      this.#ended.delete(oldest);
    }
    // With a configured key and no shared store, an id is valid without a record, so an entry marks it as ended.
    const isUnrecorded = this.#store.kind === "memory" && this.#env.key.isGiven;
    this.#quietly(
      isUnrecorded
        ? this.#store.set(name, ENDED, { expiresAtMs: this.#env.clock.now() + UNRECORDED_MS })
        : this.#store.delete(name),
    );
    this.replication.settings.end(name);
    endSession(this.replication.bus, name);
  }

  /**
   * Resolves with undefined if the id is not valid for this owner, or if the session has ended or cannot be restored.
   */
  async find(id: string, owner: string | undefined): Promise<KnownSession | undefined> {
    const { clock, key, backend, logger } = this.#env;
    const found = readSessionId(key, id, { backend, owner });
    if (found === undefined) return undefined;
    const { name, issuedAtMs, params } = found;
    const inside = params === undefined ? undefined : { record: { name, value: ALIVE }, params };
    const isYoung = clock.now() - issuedAtMs < UNRECORDED_MS;
    try {
      const record = await this.#store.get(name);
      if (record === ENDED) return undefined;
      if (record !== undefined) return inside ?? { record: { name, value: record }, params: record };
      const mayBeElsewhere = this.#store.kind === "memory" && key.isGiven;
      return mayBeElsewhere && isYoung ? inside : undefined;
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      // The signature proves the owner. Without the store, the gateway does not know whether another process ended it.
      if (!isYoung || this.#ended.has(name)) return undefined;
      logger.debug("MCP session resumed without the store", { reason: error.message });
      return inside;
    }
  }

  #expiry(agoMs: number): { expiresAtMs: number } {
    return { expiresAtMs: this.#env.clock.now() - agoMs + this.#env.idleTtlMs() };
  }

  #quietly(done: Promise<unknown>): void {
    done.catch((error: Error) => this.#env.logger.debug("MCP session not recorded", { reason: error.message }));
  }
}

/** Parameters that are larger after compression are kept in the store, because the id is sent with every request. */
const MAX_INSIDE_BYTES = 600;
const PARAMS = peerInput("client/mcp-session-id");
const ID = /^([0-9a-f]{32})\.([A-Za-z0-9_-]{7,1200})\.([A-Za-z0-9_-]{22})$/;
const TIME_BYTES = 4;
const FLAG_INSIDE = 1;

export interface SessionIdentity {
  readonly name: string;
  readonly issuedAtMs: number;
  /** The parameters of `initialize` as JSON, or undefined if they are in the store. */
  readonly params: string | undefined;
}

export interface SessionBinding {
  readonly backend: string;
  readonly owner: string | undefined;
}

export function sessionId(
  key: SigningKey,
  { name, issuedAtMs, params }: SessionIdentity,
  binding: SessionBinding,
): string {
  const packed = params === undefined ? undefined : deflateRawSync(params);
  const head = Buffer.alloc(TIME_BYTES + 1);
  head.writeUInt32BE(Math.floor(issuedAtMs / 1000));
  head.writeUInt8(packed === undefined ? 0 : FLAG_INSIDE, TIME_BYTES);
  const text = `${name}.${Buffer.concat([head, packed ?? Buffer.alloc(0)]).toString("base64url")}`;
  return `${text}.${key.sign("mcp session", ...signedValues(text, binding))}`;
}

export function fitsInside(params: string): boolean {
  return Buffer.byteLength(params) <= PARAMS.maxBytes && deflateRawSync(params).length <= MAX_INSIDE_BYTES;
}

/** Returns undefined if the id is invalid, was modified, or was issued for another owner or backend. */
export function readSessionId(key: SigningKey, id: string, binding: SessionBinding): SessionIdentity | undefined {
  const match = ID.exec(id);
  if (match === null) return undefined;
  const [, name = "", payload = "", signature = ""] = match;
  if (!key.isSignature(signature, "mcp session", ...signedValues(`${name}.${payload}`, binding))) return undefined;
  const bytes = Buffer.from(payload, "base64url");
  const issuedAtMs = bytes.readUInt32BE(0) * 1000;
  if (bytes.readUInt8(TIME_BYTES) !== FLAG_INSIDE) return { name, issuedAtMs, params: undefined };
  const params = decompress(PARAMS, bytes.subarray(TIME_BYTES + 1), "deflate-raw");
  return params && { name, issuedAtMs, params: params.toString() };
}

function signedValues(text: string, { backend, owner }: SessionBinding): readonly (string | null)[] {
  return [backend, owner ?? null, text];
}
