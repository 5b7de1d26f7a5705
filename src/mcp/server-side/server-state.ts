/**
 * Computes the state of a server across all sessions and keeps its last failure for the admin interface.
 */
import type { Clock } from "../../base/clock.ts";

/** Limits the reason, which may quote a whole line of the server's output. */
const MAX_REASON_CHARS = 500;

export interface LastFailure {
  /** The reason completes the sentence "target x …". */
  readonly reason: string;
  readonly stderr: readonly string[];
  readonly agoMs: number;
  readonly times: number;
  /** True if a handshake succeeded after the failure. */
  readonly isOver: boolean;
}

export class ServerFailures {
  readonly #clock: Clock;
  #reason = "";
  #stderr: readonly string[] = [];
  #atMs = 0;
  #times = 0;
  #isOver = true;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(reason: string, stderr: readonly string[]): void {
    this.#reason = reason.slice(0, MAX_REASON_CHARS);
    this.#stderr = stderr;
    this.#atMs = this.#clock.monotonicMs();
    this.#times += 1;
    this.#isOver = false;
  }

  over(): void {
    this.#isOver = true;
  }

  last(): LastFailure | undefined {
    if (this.#times === 0) return undefined;
    return {
      reason: this.#reason,
      stderr: this.#stderr,
      agoMs: Math.round(this.#clock.monotonicMs() - this.#atMs),
      times: this.#times,
      isOver: this.#isOver,
    };
  }
}

export interface ServerState {
  readonly target: string;
  /** `idle` means that no connection is up and no failure is current. */
  readonly state: "up" | "failing" | "idle";
  /** Counts the connections that are up. */
  readonly sessions: number;
  readonly lostSessions: number;
  /** Counts the connections that were released while their sessions are idle. The next call connects again. */
  readonly parkedSessions?: number;
  /** The reason for the last failure, even if the server is up again. It completes the sentence "target x …". */
  readonly lastError?: string;
  readonly agoMs?: number;
  readonly stderr: readonly string[];
}

export interface ConnectionDetail {
  readonly target?: unknown;
  readonly state?: unknown;
  readonly lastError?: unknown;
  readonly stderr?: unknown;
}

/** `details` may also contain connections of other targets and upstreams without a connection. */
export function serverState(
  target: string,
  details: readonly ConnectionDetail[],
  failure: LastFailure | undefined,
): ServerState {
  const connections = details.filter((one) => one.target === target && typeof one.state === "string");
  const sessions = connections.filter(({ state }) => state === "up").length;
  const parked = connections.filter(({ state }) => state === "parked").length;
  const lost = connections.filter(({ state }) => state === "down");
  // A session that failed to open has no connection, so only the recorded failure describes it.
  const hasFailed = failure !== undefined && !failure.isOver;
  const lastError = lost[0]?.lastError ?? failure?.reason;
  const stderr = (lost[0] ?? failure)?.stderr ?? connections[0]?.stderr;
  return {
    target,
    state: lost.length > 0 || (sessions === 0 && hasFailed) ? "failing" : sessions > 0 ? "up" : "idle",
    sessions,
    lostSessions: lost.length,
    ...(parked > 0 ? { parkedSessions: parked } : {}),
    ...(typeof lastError === "string" ? { lastError } : {}),
    ...(failure === undefined ? {} : { agoMs: failure.agoMs }),
    stderr: Array.isArray(stderr) ? stderr.map(String) : [],
  };
}

/** Merges the states that worker threads report into one entry per target, in the order of the first report. */
export function mergeServerStates(reports: readonly ServerState[]): ServerState[] {
  const merged = new Map<string, ServerState>();
  for (const one of reports) {
    const known = merged.get(one.target);
    merged.set(one.target, known === undefined ? one : mergeTwo(known, one));
  }
  return [...merged.values()];
}

function mergeTwo(a: ServerState, b: ServerState): ServerState {
  const sessions = a.sessions + b.sessions;
  const lostSessions = a.lostSessions + b.lostSessions;
  const parkedSessions = (a.parkedSessions ?? 0) + (b.parkedSessions ?? 0);
  const isFailing = lostSessions > 0 || (sessions === 0 && (a.state === "failing" || b.state === "failing"));
  return {
    ...moreUrgent(a, b),
    state: isFailing ? "failing" : sessions > 0 ? "up" : "idle",
    sessions,
    lostSessions,
    ...(parkedSessions > 0 ? { parkedSessions } : {}),
  };
}

function moreUrgent(a: ServerState, b: ServerState): ServerState {
  const rank = ({ state, lostSessions, lastError }: ServerState): number =>
    lostSessions > 0 ? 3 : state === "failing" ? 2 : lastError === undefined ? 0 : 1;
  if (rank(a) !== rank(b)) return rank(a) > rank(b) ? a : b;
  return (b.agoMs ?? Number.POSITIVE_INFINITY) < (a.agoMs ?? Number.POSITIVE_INFINITY) ? b : a;
}
