/**
 * Compares the request history with the access log and with what clients counted.
 */
import type { Postgres, Row } from "./postgres.ts";

interface RecordedRequest {
  readonly status: number | undefined;
  readonly tokens: number;
  readonly loggedMs: number;
  /** A failure may have lost the row. */
  mayBeLost: boolean;
}

interface AccessRecord {
  readonly recordId: string;
  readonly status?: number;
  readonly "gen_ai.usage.input_tokens"?: number;
  readonly "gen_ai.usage.output_tokens"?: number;
}

/** A killed gateway may lose the rows of this time. */
const LOST_MS = 1_000;
/** A transaction takes less than this. */
const TRANSACTION_MS = 60_000;
const SUMS = ["input_tokens", "output_tokens", "response_bytes", "duration_us"];

export class HistoryCheck {
  readonly #database: Postgres;
  readonly #broken: (invariant: string, detail: string) => void;
  readonly #records = new Map<string, RecordedRequest>();
  /** By address, the tokens and the number of complete responses of LLM clients. */
  readonly #spent = new Map<string, { tokens: number; responses: number }>();
  /** Rows that the gateways reported as dropped. */
  #dropped = 0;

  constructor(database: Postgres, broken: (invariant: string, detail: string) => void) {
    this.#database = database;
    this.#broken = broken;
  }

  logged(line: string, nowMs: number): void {
    if (line.includes('"message":"history rows dropped"')) this.#dropped += (JSON.parse(line) as { rows: number }).rows;
    if (!line.includes('"module":"access","message":"request"')) return;
    const record = JSON.parse(line) as AccessRecord;
    const { recordId, status } = record;
    const tokens = (record["gen_ai.usage.input_tokens"] ?? 0) + (record["gen_ai.usage.output_tokens"] ?? 0);
    this.#records.set(recordId, { status, tokens, loggedMs: nowMs, mayBeLost: false });
  }

  /** An LLM client has received a complete response. */
  spent(address: string, tokens: number): void {
    const sum = this.#spent.get(address) ?? { tokens: 0, responses: 0 };
    this.#spent.set(address, { tokens: sum.tokens + tokens, responses: sum.responses + 1 });
  }

  /** A process was killed, or a thread crashed at this time. */
  killed(killedMs: number): void {
    for (const record of this.#records.values()) if (record.loggedMs >= killedMs - LOST_MS) record.mayBeLost = true;
  }

  /** Rows that wait in files are not flushed, so they may be lost. */
  powerFailed(nowMs: number): void {
    const stored = this.#storedIds();
    for (const [id, record] of this.#records)
      if (!stored.has(id) || record.loggedMs >= nowMs - TRANSACTION_MS) record.mayBeLost = true;
  }

  /** `spooled` is the text of the files with rows that wait for the database. */
  checkEnd(spooled: string, isCalm: boolean, statusOf: (nonce: string) => number | undefined): void {
    const rows = this.#database.rows("gateway_requests");
    const stored = this.#storedIds();
    const missing = [...this.#records].filter(([id, { mayBeLost }]) => !mayBeLost && !stored.has(id));
    const lost = missing.filter(([id]) => !spooled.includes(`["${id}",`));
    if (lost.length > this.#dropped)
      this.#broken("the history has every request", `${lost.length} are missing, first ${lost[0]?.[0]}`);
    const nonces = new Set<string>();
    for (const row of rows) {
      const { id, path, status } = row;
      const record = this.#records.get(id ?? "");
      if (record === undefined) {
        this.#broken("the history has only requests of the access log", `${id} ${path}`);
        continue;
      }
      if (status !== textOf(record.status) || Number(row.input_tokens) + Number(row.output_tokens) !== record.tokens)
        this.#broken("the history agrees with the access log", JSON.stringify(row));
      const nonce = /^\/([clt]\d+-\d+)\//.exec(path ?? "")?.[1];
      if (nonce === undefined) continue;
      if (nonces.has(nonce)) this.#broken("the history has no duplicates", nonce);
      nonces.add(nonce);
      const received = statusOf(nonce);
      if (received !== undefined && status !== textOf(received))
        this.#broken("the history agrees with the clients", `${nonce} got ${received}, and its row has ${status}`);
    }
    this.#checkSums(rows);
    if (isCalm && stored.size === this.#records.size) this.#checkTokens(rows);
  }

  #storedIds(): Set<string> {
    return new Set(this.#database.rows("gateway_requests").map(({ id }) => id ?? ""));
  }

  /** The hourly usage and the spending are the sums of the rows. */
  #checkSums(rows: readonly Row[]): void {
    const usage = this.#database.rows("gateway_usage");
    const compare = (name: string, ofRows: number, stored: number): void => {
      if (ofRows !== stored) this.#broken("the usage is the sum of the rows", `${name}: ${stored} of ${ofRows}`);
    };
    compare("requests", rows.length, sumOf(usage, "requests"));
    for (const name of SUMS) compare(name, sumOf(rows, name), sumOf(usage, name));
    for (const result of ["ok", "rejected", "failed", "aborted"])
      compare(result, rows.filter((row) => row.result === result).length, sumOf(usage, result));
    const charged = new Map<string, number>();
    for (const { charges } of rows)
      for (const [account, amount] of charges ? (JSON.parse(charges) as [string, number][]) : [])
        charged.set(account, (charged.get(account) ?? 0) + amount);
    const spending = this.#database.rows("gateway_spending");
    compare("accounts", charged.size, spending.length);
    for (const { account, amount } of spending)
      compare(`account ${account}`, charged.get(account ?? "") ?? 0, Number(amount));
  }

  /** Clients whose responses were all complete counted the same tokens as the gateway. */
  #checkTokens(rows: readonly Row[]): void {
    for (const [address, { tokens, responses }] of this.#spent) {
      const own = rows.filter((row) => row.client === address && row.result === "ok");
      const counted = sumOf(own, "input_tokens") + sumOf(own, "output_tokens");
      if (own.length === responses && counted !== tokens)
        this.#broken("the history has the tokens of the clients", `${address}: ${counted} of ${tokens}`);
    }
  }
}

function textOf(value: number | undefined): string | null {
  return value === undefined ? null : String(value);
}

function sumOf(rows: readonly Row[], column: string): number {
  return rows.reduce((sum, row) => sum + Number(row[column]), 0);
}
