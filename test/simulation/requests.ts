/**
 * Counts the requests of a simulation, where each arrived, and its records in the access log.
 */

/** Requests that the gateway must not repeat. */
const ONCE = new Set(["POST", "MCP"]);

interface Request {
  readonly method: string;
  status: number | undefined;
  arrivals: number;
  records: number;
  /** The process that handled it may have been killed. */
  isLost: boolean;
}

/** Follows every request from its client to its record in the log. */
export class Requests {
  readonly #broken: (invariant: string, detail: string) => void;
  readonly #open = new Map<string, Request>();
  readonly #statuses = new Map<number, number>();
  count = 0;

  constructor(broken: (invariant: string, detail: string) => void) {
    this.#broken = broken;
  }

  readonly sent = (nonce: string, method: string): void => {
    this.count += 1;
    this.#open.set(nonce, { method, status: undefined, arrivals: 0, records: 0, isLost: false });
  };

  readonly answered = (nonce: string, status: number): void => {
    const request = this.#open.get(nonce);
    if (request) request.status = status;
    this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1);
  };

  readonly arrived = (nonce: string): void => {
    const request = this.#open.get(nonce);
    if (request === undefined) {
      this.#broken("backends receive only what clients sent", nonce);
      return;
    }
    request.arrivals += 1;
    if (ONCE.has(request.method) && request.arrivals > 1)
      this.#broken("a request that is not idempotent is sent once", nonce);
  };

  logged(line: string): void {
    const nonce = /"path":"\/([cklt]\d+-\d+)\//.exec(line)?.[1];
    const request = nonce === undefined ? undefined : this.#open.get(nonce);
    if (request === undefined) return;
    request.records += 1;
    if (request.records > 1) this.#broken("every request ends exactly once", `${nonce} has ${request.records} records`);
  }

  /** The requests in flight may have no record, because their process was killed. `prefix` is that of their clients. */
  readonly killed = (prefix = ""): void => {
    for (const [nonce, request] of this.#open)
      if (request.records === 0 && nonce.startsWith(prefix)) request.isLost = true;
  };

  /** The status that the client received. */
  readonly statusOf = (nonce: string): number | undefined => this.#open.get(nonce)?.status;

  checkEnd(): void {
    for (const [nonce, { method, status, arrivals, records, isLost }] of this.#open) {
      // The access log of MCP and LLM requests does not name the exchange, nor does that of an incomplete head (408).
      const isUnnamed = method === "MCP" || method === "LLM" || (status === 408 && arrivals === 0);
      if (!isLost && !isUnnamed && (status !== undefined || arrivals > 0) && records !== 1)
        this.#broken("every request ends exactly once", `${nonce} has ${records} records, status ${status}`);
    }
  }

  statuses(): Record<string, number> {
    return Object.fromEntries([...this.#statuses].sort(([a], [b]) => a - b));
  }
}
