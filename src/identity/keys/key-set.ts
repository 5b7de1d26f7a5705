/**
 * Provides the keys that a policy trusts: inline, from a watched file, or from the identity provider
 * (remote-key-set.ts).
 */

import { readFileSync, statSync } from "node:fs";
import type { Clock } from "../../base/clock.ts";
import { fileProblem } from "../../base/files.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Logger } from "../../record/log/logger.ts";
import { errorDetail } from "../providers/provider.ts";
import { failure, type ParsedToken, show, type TokenProblem } from "../tokens/token.ts";
import { type ReadKeys, readKeySet, readKeySetObject, type VerificationKey } from "./verification-key.ts";

const KEY_FILE = peerInput("file/jwks");
const MAX_KEY_SET_BYTES = KEY_FILE.maxBytes;
const MAX_KEYS_TRIED = 8;
/** Polling detects renames, symlink swaps, and bind mounts, which file events can miss. */
const FILE_POLL_MS = 1_000;

export interface KeySet {
  readonly description: string;
  readonly generation: number;
  /** Returns undefined if there are no keys that can be trusted. */
  current(): KeyTable | undefined;
  refresh(): Promise<void> | undefined;
  retryAfterSeconds(): number;
  report(): Record<string, unknown>;
  close(): void;
}

export type KeyTable = ReadonlyMap<string | undefined, readonly VerificationKey[]>;

export function createKeyTable(keys: readonly VerificationKey[]): KeyTable {
  const table = new Map<string | undefined, VerificationKey[]>();
  for (const key of keys) {
    const sameId = table.get(key.kid);
    if (sameId) sameId.push(key);
    else table.set(key.kid, [key]);
  }
  return table;
}

export function keysFor(token: ParsedToken, table: KeyTable): readonly VerificationKey[] | TokenProblem {
  const candidates = token.kid === undefined ? [...table.values()].flat() : (table.get(token.kid) ?? []);
  const fitting = candidates.filter((key) => key.algorithms.includes(token.algorithm));
  // Each key costs a verification, so the limit bounds the cost of a bad token.
  if (fitting.length > 0) return fitting.slice(0, MAX_KEYS_TRIED);
  if (token.kid === undefined) {
    return failure("key", "the token's key is not known", `the token has no kid and no key fits ${token.algorithm}`)
      .problem;
  }
  if (candidates.length > 0) {
    const detail = `the key ${show(token.kid)} is not for ${token.algorithm}`;
    return failure("algorithm", "the token's algorithm is not accepted", detail).problem;
  }
  const known = [...table.keys()].filter((kid) => kid !== undefined).slice(0, 10);
  const detail = `the token's kid is ${show(token.kid)}, the key set has [${known.join(", ")}]`;
  return failure("key", "the token's key is not known", detail).problem;
}

export function createInlineKeySet(value: unknown): KeySet {
  const read = typeof value === "string" ? readKeySet(value) : readKeySetObject(value);
  const table = createKeyTable(requireKeys(read).keys);
  return {
    description: "inline",
    generation: 1,
    current: () => table,
    refresh: () => undefined,
    retryAfterSeconds: () => 0,
    report: () => ({ source: "inline", keys: table.size }),
    close: () => undefined,
  };
}

/** Throws if the file cannot be read or parsed when it is opened. Later errors keep the last valid keys. */
export function openFileKeySet(path: string, env: { clock: Clock; logger: Logger }): KeySet {
  let stamp = fileStamp(path);
  let table = createKeyTable(readKeyFile(path).keys);
  let generation = 1;

  const timer = env.clock.every(FILE_POLL_MS, () => {
    try {
      const now = fileStamp(path);
      if (now === stamp) return;
      stamp = now;
      table = createKeyTable(readKeyFile(path).keys);
      generation += 1;
      env.logger.info("key set file reloaded", { path, keys: table.size });
    } catch (error) {
      if (stamp === "") return;
      stamp = "";
      env.logger.warn("key set file cannot be read; the previous keys stay active", {
        path,
        error: errorDetail(error),
      });
    }
  });

  return {
    description: path,
    get generation() {
      return generation;
    },
    current: () => table,
    refresh: () => undefined,
    retryAfterSeconds: () => 0,
    report: () => ({ source: path, keys: table.size }),
    close: () => timer.cancel(),
  };
}

export function requireKeys(read: ReadKeys): ReadKeys {
  if (read.keys.length > 0) return read;
  const reasons = read.skipped.length > 0 ? `: ${read.skipped.slice(0, 3).join("; ")}` : "";
  throw new Error(`the key set has no usable key${reasons}`);
}

function readKeyFile(path: string): ReadKeys {
  return requireKeys(
    readKeySet(
      readable(path, () => readFileSync(path, "utf8")),
      KEY_FILE,
    ),
  );
}

function readable<Value>(path: string, read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    throw new Error(fileProblem(path, error));
  }
}

/**
 * Returns a value that changes with the inode, size, or modification time. Throws if the file is too large or not a
 * regular file.
 */
function fileStamp(path: string): string {
  const stat = readable(path, () => statSync(path));
  if (!stat.isFile()) throw new Error(`cannot read ${path}: it is not a regular file`);
  if (stat.size > MAX_KEY_SET_BYTES) throw new Error(`${path} is larger than ${MAX_KEY_SET_BYTES} bytes`);
  return `${stat.ino}:${stat.size}:${stat.mtimeMs}`;
}
