/**
 * A Redis server with the commands that the gateway uses (RESP3): strings with expiry, the gateway's scripts, and
 * channels. It keeps its data when it restarts, as with an append-only file, but forgets scripts and subscriptions.
 */
import crypto from "node:crypto";
import { addHeld, formatHolders, NUMBERS_KEPT_MS, parseHolders } from "../../src/store/holds.ts";
import type { Network, Side } from "./network.ts";
import { Peer, sleep } from "./peer.ts";
import { OUTSIDE, type Scheduler } from "./scheduler.ts";

const PATIENCE_MS = 24 * 3_600_000;

class RedisError extends Error {}

/** A reply: a status, a number, a string, null, or a list. Other types are not needed. */
type Reply = { readonly status: string } | number | string | null | readonly Reply[];

export interface Scripts {
  readonly add: string;
  readonly addHeld: string;
  readonly replace: string;
}

interface Entry {
  readonly value: string;
  readonly expiresAtMs: number;
}

interface Connection {
  readonly peer: Peer;
  readonly channels: Set<string>;
}

export class Redis {
  readonly #network: Network;
  readonly #scheduler: Scheduler;
  readonly #listener = { process: OUTSIDE, accept: (side: Side): void => void this.#serve(side) };
  readonly #entries = new Map<string, Entry>();
  readonly #connections = new Set<Connection>();
  /** The scripts by their SHA-1. */
  readonly #scripts = new Map<string, string>();
  readonly #known: Scripts;
  readonly #address: string;
  readonly #port: number;
  #stalledUntilMs = 0;

  /** `scripts` are the texts of the gateway's scripts. */
  constructor(address: string, port: number, network: Network, scripts: Scripts) {
    this.#known = scripts;
    this.#address = address;
    this.#port = port;
    this.#network = network;
    this.#scheduler = network.scheduler;
    this.start();
  }

  start(): void {
    this.#network.listen(this.#address, this.#port, this.#listener);
  }

  /** Resets all connections and refuses new ones until `start`. */
  stop(): void {
    this.#network.unlisten(this.#listener);
    this.#scripts.clear();
    for (const { peer } of this.#connections) peer.side.abort();
    this.#connections.clear();
  }

  /** Commands wait this long, as during a slow write to disk. */
  stall(ms: number): void {
    this.#stalledUntilMs = this.#scheduler.nowMs + ms;
  }

  async #serve(side: Side): Promise<void> {
    const connection = { peer: new Peer(side, this.#scheduler, PATIENCE_MS), channels: new Set<string>() };
    this.#connections.add(connection);
    let input = Buffer.alloc(0);
    for (;;) {
      const bytes = await connection.peer.read();
      if (typeof bytes === "string") break;
      input = Buffer.concat([input, bytes]);
      for (let command = parseCommand(input); command !== undefined; command = parseCommand(input)) {
        input = input.subarray(command.bytes);
        const stalledMs = this.#stalledUntilMs - this.#scheduler.nowMs;
        if (stalledMs > 0) await sleep(this.#scheduler, stalledMs);
        if (side.isClosed) return;
        void connection.peer.write(this.#run(connection, command.words));
      }
    }
    this.#connections.delete(connection);
    side.close();
  }

  #run(connection: Connection, [name = "", ...args]: readonly string[]): string {
    try {
      return this.#execute(connection, name.toUpperCase(), args);
    } catch (error) {
      if (!(error instanceof RedisError)) throw error;
      return `-${error.message}\r\n`;
    }
  }

  #execute(connection: Connection, name: string, args: readonly string[]): string {
    const [key = "", value = "", option, expiry] = args;
    switch (name) {
      case "HELLO":
        return "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n";
      case "CLIENT":
        return written({ status: "OK" });
      case "INFO":
        return written("redis_version:7.2.0\r\nloading:0\r\n");
      case "PING":
        return written({ status: "PONG" });
      case "GET":
        return written(this.#get(key) ?? null);
      case "MGET":
        return written(args.map((one) => this.#get(one) ?? null));
      case "SET":
        this.#set(key, value, option === "PX" ? expiry : "");
        return written({ status: "OK" });
      case "DEL":
        return written(args.filter((one) => this.#get(one) !== undefined && this.#entries.delete(one)).length);
      case "SCAN":
        return written(["0", this.#matching(option ?? "")]);
      case "EVAL":
        this.#scripts.set(crypto.createHash("sha1").update(key).digest("hex"), key);
        return written(this.#script(key, args.slice(2)));
      case "EVALSHA": {
        const script = this.#scripts.get(key);
        if (script === undefined) throw new RedisError("NOSCRIPT No matching script.");
        return written(this.#script(script, args.slice(2)));
      }
      case "PUBLISH":
        return written(this.#publish(key, value));
      case "SUBSCRIBE":
        return args.map((channel) => subscribed("subscribe", channel, connection.channels.add(channel).size)).join("");
      case "UNSUBSCRIBE":
        return args
          .map((channel) => {
            connection.channels.delete(channel);
            return subscribed("unsubscribe", channel, connection.channels.size);
          })
          .join("");
      default:
        throw new RedisError(`ERR unknown command '${name}'`);
    }
  }

  #get(key: string): string | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.expiresAtMs > Date.now()) return entry?.value;
    this.#entries.delete(key);
    return undefined;
  }

  /** `lifetime` is in milliseconds, or empty. */
  #set(key: string, value: string, lifetime = ""): void {
    const expiresAtMs = lifetime === "" ? Number.POSITIVE_INFINITY : Date.now() + Number(lifetime);
    this.#entries.set(key, { value, expiresAtMs });
  }

  #matching(pattern: string): string[] {
    const prefix = pattern.slice(0, -1).replace(/\\(.)/g, "$1");
    return [...this.#entries.keys()].filter((key) => key.startsWith(prefix) && this.#get(key) !== undefined);
  }

  #publish(channel: string, text: string): number {
    const receivers = [...this.#connections].filter(({ channels }) => channels.has(channel));
    for (const { peer } of receivers) void peer.write(`>3\r\n${written("message")}${written(channel)}${written(text)}`);
    return receivers.length;
  }

  /** The translations of the gateway's scripts. */
  #script(script: string, [key = "", ...args]: readonly string[]): Reply {
    if (script === this.#known.add) return this.#add(key, args);
    if (script === this.#known.addHeld) return this.#addHeld(key, args);
    if (script === this.#known.replace) return this.#replace(key, args);
    throw new RedisError("ERR unknown script");
  }

  #add(key: string, [amountText, limit = "", lifetime]: readonly string[]): Reply {
    const current = this.#get(key);
    if (current !== undefined && !/^\d+$/.test(current)) throw new RedisError("NOTCOUNTER");
    const before = Number(current ?? 0);
    const amount = Number(amountText);
    const total = Math.max(0, before + amount);
    if (total > Number.MAX_SAFE_INTEGER) throw new RedisError("TOOLARGE");
    if (amount > 0 && limit !== "" && total > Number(limit)) return [0, String(before)];
    const entry = this.#entries.get(key);
    if (total !== before && entry !== undefined) this.#entries.set(key, { ...entry, value: String(total) });
    else if (total !== before && lifetime !== "0") this.#set(key, String(total), lifetime);
    return [1, String(total)];
  }

  #addHeld(key: string, [at = "", amount, limit, lifetime, owner = "", ...numbers]: readonly string[]): Reply {
    const current = this.#get(key);
    if (current !== undefined && !/^\d+$/.test(current)) throw new RedisError("NOTCOUNTER");
    const before = current === undefined ? undefined : Number(current);
    const [sequence = 0, taken = 0, released = 0, renewed = 0, isExact, forMs = 0] = numbers.map(Number);
    const isRenewed = numbers[3] !== "";
    const holders = parseHolders(this.#get(at));
    const { isAdded, total } = addHeld(
      before,
      holders,
      Number(amount),
      limit === "" ? undefined : Number(limit),
      {
        owner,
        sequence,
        taken,
        released,
        ...(isRenewed ? { renewed: { amount: renewed, isExact: isExact === 1 } } : {}),
        forMs,
      },
      Date.now(),
    );
    const entry = this.#entries.get(key);
    if (total !== (before ?? 0) && entry !== undefined) this.#entries.set(key, { ...entry, value: String(total) });
    else if (total !== (before ?? 0) && lifetime !== "0") this.#set(key, String(total), lifetime);
    const holds = formatHolders(holders);
    if (holds === "") this.#entries.delete(at);
    else this.#set(at, holds, String(forMs + NUMBERS_KEPT_MS));
    return [isAdded ? 1 : 0, String(total)];
  }

  #replace(key: string, [isExpected, expected, value = "", lifetime]: readonly string[]): Reply {
    const current = this.#get(key);
    if (isExpected === "1" ? current !== expected : current !== undefined) return 0;
    if (lifetime === "0") this.#entries.delete(key);
    else this.#set(key, value, lifetime);
    return 1;
  }
}

function written(reply: Reply): string {
  if (reply === null) return "_\r\n";
  if (typeof reply === "number") return `:${reply}\r\n`;
  if (typeof reply === "string") return `$${Buffer.byteLength(reply)}\r\n${reply}\r\n`;
  if ("status" in reply) return `+${reply.status}\r\n`;
  return `*${reply.length}\r\n${reply.map(written).join("")}`;
}

function subscribed(kind: string, channel: string, count: number): string {
  return `>3\r\n${written(kind)}${written(channel)}${written(count)}`;
}

/** Reads one command from the start of the input, or returns undefined if it is not complete. */
function parseCommand(input: Buffer): { words: string[]; bytes: number } | undefined {
  let at = 0;
  const readNumber = (): number | undefined => {
    const end = input.indexOf("\r\n", at);
    if (end < 0) return undefined;
    const number = Number(input.toString("latin1", at + 1, end));
    at = end + 2;
    return number;
  };
  const count = readNumber();
  if (count === undefined) return undefined;
  const words: string[] = [];
  while (words.length < count) {
    const length = readNumber();
    if (length === undefined || at + length + 2 > input.length) return undefined;
    words.push(input.toString("utf8", at, at + length));
    at += length + 2;
  }
  return { words, bytes: at };
}
