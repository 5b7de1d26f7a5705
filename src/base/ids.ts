/**
 * Generates random identifiers from a pool of random bytes.
 */
import { randomFillSync } from "node:crypto";

const POOL_BYTES = 4096;

export interface IdSource {
  hex(bytes: number): string;
}

export function createIdSource(): IdSource {
  const pool = Buffer.allocUnsafe(POOL_BYTES);
  let used = POOL_BYTES;
  return {
    hex(bytes) {
      if (used + bytes > POOL_BYTES) {
        randomFillSync(pool);
        used = 0;
      }
      used += bytes;
      return pool.toString("hex", used - bytes, used);
    },
  };
}

/** Creates unique IDs that clients cannot choose, from a random prefix and a counter. */
export function createRecordIds(source: IdSource = createIdSource()): () => string {
  const prefix = source.hex(8);
  let count = 0;
  return () => {
    count += 1;
    return `${prefix}-${count.toString(36)}`;
  };
}

const CLIENT_REQUEST_ID = /^[A-Za-z0-9._-]{1,64}$/;

/** Restricts the `x-request-id` of a client, because it appears in logs and responses. */
export function isRequestId(value: string): boolean {
  return CLIENT_REQUEST_ID.test(value);
}
