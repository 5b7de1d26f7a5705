/**
 * The state of a server across all sessions, and its last failure, whose reason and stderr tail outlive the connection
 * and the session. The admin interface reports both; the UI and `gwctl` only display them. Secrets are redacted where
 * these texts are created.
 */
import type { Clock } from "../../base/clock.ts";

/** A reason may quote a whole line of the server's output. */
const MAX_REASON_CHARS = 500;

export interface LastFailure {
  /** Completes "target x …". */
  readonly reason: string;
  readonly stderr: readonly string[];
  readonly agoMs: number;
  /** Number of failures since the gateway started. */
  readonly times: number;
  /** Whether the server has been up since. */
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

  /** Marks the failure as over after a successful handshake. */
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
  /** `idle`: no session has used the server, or its processes are stopped. */
  readonly state: "up" | "failing" | "idle";
  /** The number of sessions in which the server is up. A shared server counts once. */
  readonly sessions: number;
  /** The number of sessions that lost their connection to the server. */
  readonly lostSessions: number;
  /** The reason of the last failure, even if the server is up again. Completes "target x …". */
  readonly lastError?: string;
  /** Milliseconds since the last failure. */
  readonly agoMs?: number;
  readonly stderr: readonly string[];
}

/** The part of a connection's `detail()` that defines the state of its server. */
export interface ConnectionDetail {
  readonly target?: unknown;
  readonly state?: unknown;
  readonly lastError?: unknown;
  readonly stderr?: unknown;
}

/** `details` may contain connections of other targets, and upstreams without a connection of their own. */
export function serverState(
  target: string,
  details: readonly ConnectionDetail[],
  failure: LastFailure | undefined,
): ServerState {
  const connections = details.filter((one) => one.target === target && typeof one.state === "string");
  const sessions = connections.filter(({ state }) => state === "up").length;
  const lost = connections.filter(({ state }) => state === "down");
  // A session that failed to open has no connection, so only the recorded failure is left of it.
  const hasFailed = failure !== undefined && !failure.isOver;
  const lastError = lost[0]?.lastError ?? failure?.reason;
  const stderr = (lost[0] ?? failure)?.stderr ?? connections[0]?.stderr;
  return {
    target,
    state: lost.length > 0 || (sessions === 0 && hasFailed) ? "failing" : sessions > 0 ? "up" : "idle",
    sessions,
    lostSessions: lost.length,
    ...(typeof lastError === "string" ? { lastError } : {}),
    ...(failure === undefined ? {} : { agoMs: failure.agoMs }),
    stderr: Array.isArray(stderr) ? stderr.map(String) : [],
  };
}

/** Merges the states that worker threads report: one entry per target, in the order of the first report. */
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
  const isFailing = lostSessions > 0 || (sessions === 0 && (a.state === "failing" || b.state === "failing"));
  return {
    ...moreUrgent(a, b),
    state: isFailing ? "failing" : sessions > 0 ? "up" : "idle",
    sessions,
    lostSessions,
  };
}

/** The report whose error is shown: a lost connection before a recorded failure, and the latest failure first. */
function moreUrgent(a: ServerState, b: ServerState): ServerState {
  const rank = ({ state, lostSessions, lastError }: ServerState): number =>
    lostSessions > 0 ? 3 : state === "failing" ? 2 : lastError === undefined ? 0 : 1;
  if (rank(a) !== rank(b)) return rank(a) > rank(b) ? a : b;
  return (b.agoMs ?? Number.POSITIVE_INFINITY) < (a.agoMs ?? Number.POSITIVE_INFINITY) ? b : a;
}
