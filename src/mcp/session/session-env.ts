/**
 * What a session needs from those who keep it, and where it comes from if another process began it.
 */

import type { MemoryAccount } from "../../base/memory-budget.ts";
import { shownPrincipal } from "../../core/principal.ts";
import { shortSessionId } from "../../observe/trace/redact.ts";
import type { PeersEnv } from "../replicas/session-peers.ts";
import type { Upstream } from "../server-side/upstream.ts";
import type { CarriedAnswers } from "./client-questions.ts";
import type { EventStream } from "./event-stream.ts";
import type { SessionRecord } from "./session-records.ts";

export interface SessionEnv<S> {
  readonly nowMs: () => number;
  /** To and from replicas that hold the same session. */
  readonly answers: CarriedAnswers;
  readonly peers: PeersEnv;
  /** How long a session may be left alone before its processes are stopped; 0: for ever. */
  parkAfterMs(): number;
  /** Something that the end of the gateway must wait for. */
  closing(done: Promise<unknown>): void;
  streamOpened(stream: EventStream): void;
  streamClosed(stream: EventStream): void;
  /** Its servers have answered. */
  isOpen(session: S): void;
  /** The session is over. */
  ended(session: S, reason: string, isForGood: boolean): void;
}

/** A session that goes on in another process than the one that it began in. */
export interface SessionOrigin {
  readonly id: string;
  /** How the store knows it; undefined if it cannot go on elsewhere. */
  readonly record?: SessionRecord;
  /** An earlier process may have given the numbers up to this one to events. */
  readonly eventsBefore?: number;
}

/** A session is charged for what it retains. */
export interface ChargedOrigin extends SessionOrigin {
  readonly account: MemoryAccount;
}

interface Shown {
  readonly version: string;
  readonly lastUsedMs: number;
  readonly pendingCalls: number;
  readonly general: EventStream;
  readonly owner: string | undefined;
  readonly upstreams: readonly Upstream[];
}

/** A session as the admin interface shows it. */
export function detailOf(session: Shown, nowMs: number): Record<string, unknown> {
  return {
    protocolVersion: session.version,
    idleMs: Math.round(nowMs - session.lastUsedMs),
    pendingCalls: session.pendingCalls,
    listening: session.general.isConnected,
    ...(session.owner === undefined ? {} : { owner: shownPrincipal(session.owner) }),
    targets: session.upstreams.map((upstream) => upstream.detail()),
  };
}

/** The whole id is a key to the session: what is shown of it must not be one. */
export function shownId({ id }: { readonly id: string }): string {
  return shortSessionId(id);
}

/** Ends the session that is shown like this, unless several are. */
export function endShown(
  sessions: readonly { readonly id: string; end(reason: string): void }[],
  shown: string,
): number {
  const found = sessions.filter((session) => shownId(session) === shown);
  if (found.length === 1) found[0]?.end("an operator ended it");
  return found.length;
}
