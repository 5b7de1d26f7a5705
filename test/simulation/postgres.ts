/**
 * A PostgreSQL server with the statements of the request history: transactions with row locks and deadlock detection,
 * statement timeouts, and primary keys. A committed transaction is durable. A connection that ends rolls back.
 */
import type { Network, Side } from "./network.ts";
import { Peer, sleep } from "./peer.ts";
import { OUTSIDE, type Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

const PATIENCE_MS = 24 * 3_600_000;
/** The average duration of a statement. */
const STATEMENT_MS = 1;

/** The value of a column, as text. */
type Value = string | null;
export type Row = Readonly<Record<string, Value>>;
type Table = Map<string, Row>;

class PostgresError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

interface Answer {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly Value[])[];
}

const NOTHING: Answer = { columns: [], rows: [] };
const KEYS: Readonly<Record<string, readonly string[]>> = { gateway_requests: ["time", "id"] };

interface Session {
  readonly peer: Peer;
  statementLimitMs: number;
  /** In the reverse order, these functions undo the transaction. Undefined outside of a transaction. */
  undo: (() => void)[] | undefined;
  hasFailed: boolean;
  readonly locks: Set<string>;
  /** The lock that the session waits for. */
  waitsFor: string | undefined;
}

export class Postgres {
  readonly #network: Network;
  readonly #scheduler: Scheduler;
  readonly #random: Seeded;
  readonly #address: string;
  readonly #port: number;
  readonly #broken: (invariant: string, detail: string) => void;
  readonly #listener = { process: OUTSIDE, accept: (side: Side): void => void this.#serve(side) };
  readonly #sessions = new Set<Session>();
  readonly #tables = new Map<string, Table>();
  readonly #holders = new Map<string, Session>();
  #wake: (() => void)[] = [];
  #stalledUntilMs = 0;
  #statementMs = STATEMENT_MS;
  /** No row is older. */
  #oldestMs = Number.POSITIVE_INFINITY;

  constructor(
    address: string,
    port: number,
    network: Network,
    random: Seeded,
    broken: (invariant: string, detail: string) => void,
  ) {
    this.#address = address;
    this.#port = port;
    this.#network = network;
    this.#scheduler = network.scheduler;
    this.#random = random;
    this.#broken = broken;
    this.start();
  }

  start(): void {
    this.#network.listen(this.#address, this.#port, this.#listener);
  }

  /** Resets all connections and refuses new ones until `start`. */
  stop(): void {
    this.#network.unlisten(this.#listener);
    for (const session of this.#sessions) {
      session.peer.side.abort();
      this.#endTransaction(session, false);
    }
    this.#sessions.clear();
  }

  /** Nothing happens for this time, and then everything that has arrived. */
  stall(ms: number): void {
    this.#stalledUntilMs = this.#scheduler.nowMs + ms;
  }

  /** Statements take this long on average. */
  slowDown(ms = STATEMENT_MS): void {
    this.#statementMs = ms;
  }

  /** The committed and uncommitted rows of a table. */
  rows(table: string): Row[] {
    return [...(this.#tables.get(table)?.values() ?? [])];
  }

  async #serve(side: Side): Promise<void> {
    const peer = new Peer(side, this.#scheduler, PATIENCE_MS);
    const session: Session = {
      peer,
      statementLimitMs: Number.POSITIVE_INFINITY,
      undo: undefined,
      hasFailed: false,
      locks: new Set(),
      waitsFor: undefined,
    };
    this.#sessions.add(session);
    await this.#talk(session);
    this.#sessions.delete(session);
    this.#endTransaction(session, false);
    side.close();
  }

  async #talk(session: Session): Promise<void> {
    const { peer } = session;
    let input = Buffer.alloc(0);
    /** Reads a message of `headBytes` bytes before its length. */
    const readMessage = async (headBytes: number): Promise<Buffer | undefined> => {
      while (input.length < headBytes + 4 || input.length < headBytes + input.readInt32BE(headBytes)) {
        const bytes = await peer.read();
        if (typeof bytes === "string") return undefined;
        input = Buffer.concat([input, bytes]);
      }
      const size = headBytes + input.readInt32BE(headBytes);
      const message = input.subarray(0, size);
      input = input.subarray(size);
      return message;
    };
    const startup = await readMessage(0);
    if (startup === undefined) return;
    const settings = startup.toString("utf8", 8).split("\0");
    session.statementLimitMs = Number(settings[settings.indexOf("statement_timeout") + 1]);
    void peer.write(Buffer.concat([reply("R", int32(0)), reply("K", int32(1), int32(1)), ready(session)]));
    let text = "";
    let parameters: readonly Value[] = [];
    let answer = NOTHING;
    let isSkipping = false;
    for (let message = await readMessage(1); message !== undefined; message = await readMessage(1)) {
      const stalledMs = this.#stalledUntilMs - this.#scheduler.nowMs;
      if (stalledMs > 0) await sleep(this.#scheduler, stalledMs);
      if (!this.#sessions.has(session)) return;
      const type = String.fromCharCode(message[0] ?? 0);
      const body = message.subarray(5);
      const out: Buffer[] = [];
      if (type === "X") return;
      if (type === "S") {
        isSkipping = false;
        out.push(ready(session));
      } else if (isSkipping) continue;
      else if (type === "P") {
        text = body.toString("utf8").split("\0")[1] ?? "";
        out.push(reply("1"));
      } else if (type === "B") {
        parameters = readParameters(body);
        out.push(reply("2"));
      } else
        try {
          if (type === "Q") answer = await this.#execute(session, body.toString("utf8", 0, body.length - 1), []);
          // The columns are known after the statement has run, which happens here instead of at `E`.
          if (type === "D") answer = await this.#execute(session, text, parameters);
          if (type === "D" || (type === "Q" && answer.columns.length > 0)) out.push(described(answer));
          if (type === "E" || type === "Q") out.push(...answer.rows.map(dataRow), reply("C", cstring("OK")));
          if (type === "Q") out.push(ready(session));
        } catch (error) {
          if (!(error instanceof PostgresError)) throw error;
          if (session.undo) session.hasFailed = true;
          isSkipping = type !== "Q";
          out.push(reply("E", cstring("SERROR"), cstring(`C${error.code}`), cstring(`M${error.message}`), int8(0)));
          if (type === "Q") out.push(ready(session));
        }
      if (!this.#sessions.has(session)) return;
      void peer.write(Buffer.concat(out));
    }
  }

  async #execute(session: Session, statement: string, parameters: readonly Value[]): Promise<Answer> {
    const limitMs = this.#scheduler.nowMs + session.statementLimitMs;
    const durationMs = this.#random.exponential(this.#statementMs);
    await sleep(this.#scheduler, Math.min(durationMs, session.statementLimitMs));
    if (!this.#sessions.has(session)) return NOTHING;
    const [word = ""] = statement.split(" ", 1);
    if (word === "ROLLBACK") this.#endTransaction(session, false);
    else if (word === "COMMIT") this.#endTransaction(session, !session.hasFailed);
    else if (session.hasFailed) throw new PostgresError("25P02", "current transaction is aborted");
    else if (durationMs >= session.statementLimitMs) throw timedOut();
    else if (word === "BEGIN") session.undo = [];
    else return this.#change(session, statement, parameters, limitMs);
    return NOTHING;
  }

  #endTransaction(session: Session, isCommitted: boolean): void {
    if (!isCommitted) for (const undo of session.undo?.reverse() ?? []) undo();
    session.undo = undefined;
    session.hasFailed = false;
    for (const lock of session.locks) this.#holders.delete(lock);
    session.locks.clear();
    const waiting = this.#wake;
    this.#wake = [];
    for (const wake of waiting) wake();
  }

  /** Waits until no other transaction has the lock. The transaction keeps it. */
  async #lock(session: Session, lock: string, limitMs: number): Promise<void> {
    for (;;) {
      const holder = this.#holders.get(lock);
      if (!this.#sessions.has(session)) throw new PostgresError("57P01", "the server stops");
      if (holder === undefined || holder === session) break;
      session.waitsFor = lock;
      if (this.#isDeadlock(session)) {
        session.waitsFor = undefined;
        throw new PostgresError("40P01", "deadlock detected");
      }
      let isLate = false;
      await new Promise<void>((resolve) => {
        const limit = this.#scheduler.at(limitMs, () => {
          isLate = true;
          resolve();
        });
        this.#wake.push(() => {
          this.#scheduler.cancel(limit);
          resolve();
        });
      });
      session.waitsFor = undefined;
      if (isLate) throw timedOut();
    }
    this.#holders.set(lock, session);
    session.locks.add(lock);
  }

  #isDeadlock(session: Session): boolean {
    const seen = new Set<Session>();
    for (let at: Session | undefined = session; at?.waitsFor !== undefined; at = this.#holders.get(at.waitsFor)) {
      if (seen.has(at)) return true;
      seen.add(at);
    }
    return false;
  }

  async #change(session: Session, statement: string, parameters: readonly Value[], limitMs: number): Promise<Answer> {
    const [, verb = "", table = ""] =
      /^(SELECT|INSERT INTO|DELETE FROM|CREATE TABLE|CREATE INDEX|ALTER TABLE).*?(gateway_\w+|pg_\w+)/.exec(
        statement,
      ) ?? [];
    const known = this.#tables.get(table);
    if (table === "pg_advisory_xact_lock") {
      await this.#lock(session, table, limitMs);
      return { columns: [table], rows: [[""]] };
    }
    if (verb === "CREATE TABLE") {
      if (known === undefined) {
        this.#tables.set(table, new Map());
        session.undo?.push(() => this.#tables.delete(table));
      } else if (!statement.includes("IF NOT EXISTS")) throw new PostgresError("42P07", `${table} exists`);
      return NOTHING;
    }
    if (verb === "CREATE INDEX" || verb === "ALTER TABLE") return NOTHING;
    if (known === undefined) throw new PostgresError("42P01", `relation "${table}" does not exist`);
    if (verb === "INSERT INTO") return this.#insert(session, known, table, statement, parameters, limitMs);
    if (verb === "DELETE FROM") return this.#delete(session, known, statement, parameters);
    if (statement === "SELECT version FROM gateway_schema")
      return { columns: ["version"], rows: [...known.values()].map(({ version = null }) => [version]) };
    this.#broken("the simulation runs", `PostgreSQL does not understand: ${statement}`);
    return NOTHING;
  }

  async #insert(
    session: Session,
    table: Table,
    name: string,
    statement: string,
    parameters: readonly Value[],
    limitMs: number,
  ): Promise<Answer> {
    const columns = listOf(/\(([^)]*)\)/.exec(statement)?.[1]);
    const keyColumns = KEYS[name] ?? listOf(/ON CONFLICT \(([^)]*)\)/.exec(statement)?.[1]);
    const inserted: Row[] = [];
    for (const row of statement.includes("unnest")
      ? joinedRows(statement, parameters)
      : plainRows(columns, parameters)) {
      const key = keyColumns.map((column) => row[column]).join("\n");
      await this.#lock(session, `${name}\n${key}`, limitMs);
      const before = table.get(key);
      if (before !== undefined && statement.includes("DO NOTHING")) continue;
      table.set(key, before === undefined ? row : updated(statement, before, row));
      inserted.push(row);
      this.#oldestMs = Math.min(this.#oldestMs, Number(row.hour ?? row.time ?? Number.POSITIVE_INFINITY));
      session.undo?.push(() => (before === undefined ? table.delete(key) : table.set(key, before)));
    }
    const isReturning = statement.endsWith("RETURNING id");
    return isReturning ? { columns: ["id"], rows: inserted.map(({ id = null }) => [id]) } : NOTHING;
  }

  #delete(session: Session, table: Table, statement: string, [limit]: readonly Value[]): Answer {
    const column = /WHERE (\w+) < \$1/.exec(statement)?.[1];
    const deleted: null[][] = [];
    if (column !== undefined && Number(limit) <= this.#oldestMs) return { columns: ["one"], rows: deleted };
    for (const [key, row] of table) {
      if (column !== undefined && Number(row[column]) >= Number(limit)) continue;
      table.delete(key);
      deleted.push([null]);
      session.undo?.push(() => table.set(key, row));
    }
    return { columns: ["one"], rows: deleted };
  }
}

function timedOut(): PostgresError {
  return new PostgresError("57014", "canceling statement due to statement timeout");
}

function listOf(text = ""): string[] {
  return text.split(", ");
}

function plainRows(columns: readonly string[], parameters: readonly Value[]): Row[] {
  const rows: Row[] = [];
  for (let at = 0; at < parameters.length; at += columns.length)
    rows.push(Object.fromEntries(columns.map((name, i) => [name, parameters[at + i] ?? null])));
  return rows;
}

/** The rows of two lists of columns, which are joined by their first column. */
function joinedRows(statement: string, parameters: readonly Value[]): Row[] {
  const [own = [], shared = []] = [...statement.matchAll(/AS \w \(([^)]*)\)/g)].map(([, names]) => listOf(names));
  const values = parameters.map((text) => arrayOf(text ?? ""));
  const rowAt = (names: readonly string[], first: number, at: number): Row =>
    Object.fromEntries(names.map((name, i) => [name, values[first + i]?.[at] ?? null]));
  const groups = values[own.length]?.map((_, at) => rowAt(shared, own.length, at)) ?? [];
  return (values[0] ?? []).map((group, at) => {
    const { group_index: _, ...row } = { ...rowAt(own, 0, at), ...groups.find((one) => one.group_index === group) };
    return row;
  });
}

/** The elements of an array in the text format, which are NULL or quoted. */
function arrayOf(text: string): Value[] {
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|NULL/gs)].map(([, quoted]) => quoted?.replace(/\\(.)/gs, "$1") ?? null);
}

/** Applies `SET a = table.a + excluded.a, b = excluded.b`. */
function updated(statement: string, before: Row, row: Row): Row {
  const after = { ...before };
  for (const [, column = "", isSum] of statement.matchAll(/(\w+) = (\w+\.\w+ \+ )?excluded\.\w+/g))
    after[column] = isSum === undefined ? (row[column] ?? null) : String(Number(before[column]) + Number(row[column]));
  return after;
}

function readParameters(body: Buffer): Value[] {
  let at = body.indexOf(0) + 1;
  at = body.indexOf(0, at) + 1;
  at += 2 + 2 * body.readInt16BE(at);
  const count = body.readUInt16BE(at);
  at += 2;
  return Array.from({ length: count }, () => {
    const size = body.readInt32BE(at);
    at += 4 + Math.max(0, size);
    return size < 0 ? null : body.toString("utf8", at - size, at);
  });
}

function int8(value: number): Buffer {
  return Buffer.from([value]);
}

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

function cstring(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

function reply(type: string, ...parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body]);
}

function ready({ undo, hasFailed }: Session): Buffer {
  return reply("Z", Buffer.from(undo === undefined ? "I" : hasFailed ? "E" : "T"));
}

const TEXT_TYPE = 25;

function described({ columns }: Answer): Buffer {
  if (columns.length === 0) return reply("n");
  const fields = columns.flatMap((name) => [
    cstring(name),
    int32(0),
    int16(0),
    int32(TEXT_TYPE),
    int16(-1),
    int32(-1),
    int16(0),
  ]);
  return reply("T", int16(columns.length), ...fields);
}

function dataRow(values: readonly Value[]): Buffer {
  const parts = values.map((value) =>
    value === null ? int32(-1) : Buffer.concat([int32(Buffer.byteLength(value)), Buffer.from(value)]),
  );
  return reply("D", int16(values.length), ...parts);
}
