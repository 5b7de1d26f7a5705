/**
 * Asks the API server whose ServiceAccount tokens the clients of the controller present. Any pod can send tokens, so
 * invalid ones neither displace valid ones nor cause many requests at once.
 */
import { createHash } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { Clock } from "../base/clock.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";
import type { ApiClient } from "./api-client.ts";

/** Tokens for another audience, such as the API server, are rejected. */
export const TOKEN_AUDIENCE = "gateway-controller";
const FRESH_MS = 60_000;
const STALE_MS = 600_000;
const MAX_KNOWN = 10_000;
const MAX_RUNNING_PER_ADDRESS = 4;
const PATH = "/apis/authentication.k8s.io/v1/tokenreviews";

/** Thrown if the address waits for the results of other tokens. */
export class TooManyReviews extends Error {}

export interface TokenReviews {
  /**
   * Resolves to undefined if the token is invalid. Rejects if the API server is unavailable and no recent result
   * exists.
   */
  userOf(token: string, address: string): Promise<string | undefined>;
}

interface Review {
  readonly user: string | undefined;
  readonly atMs: number;
}

export function createTokenReviews(client: Pick<ApiClient, "request">, clock: Clock): TokenReviews {
  const valid = new LRUCache<string, Review>({ max: MAX_KNOWN });
  const invalid = new LRUCache<string, Review>({ max: MAX_KNOWN });
  const running = new Map<string, Promise<Review>>();
  const runningOf = new Map<string, number>();

  async function review(token: string, key: string): Promise<Review> {
    const spec = { token, audiences: [TOKEN_AUDIENCE] };
    const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec };
    const status = fieldsOf(fieldsOf(await client.request({ method: "POST", path: PATH, body })).status);
    const isGood = status.authenticated === true && listOf(status.audiences).includes(TOKEN_AUDIENCE);
    const { username } = fieldsOf(status.user);
    const user = isGood && typeof username === "string" ? username : undefined;
    const found = { user, atMs: clock.monotonicMs() };
    // A token that was revoked becomes invalid.
    if (user === undefined) valid.delete(key);
    (user === undefined ? invalid : valid).set(key, found);
    return found;
  }

  function start(token: string, key: string, address: string): Promise<Review> {
    const count = runningOf.get(address) ?? 0;
    if (count >= MAX_RUNNING_PER_ADDRESS) throw new TooManyReviews();
    runningOf.set(address, count + 1);
    const started = review(token, key).finally(() => {
      running.delete(key);
      const left = (runningOf.get(address) ?? 1) - 1;
      if (left === 0) runningOf.delete(address);
      else runningOf.set(address, left);
    });
    running.set(key, started);
    return started;
  }

  return {
    async userOf(token, address) {
      const key = createHash("sha256").update(token).digest("base64");
      const before = valid.get(key) ?? invalid.get(key);
      const age = before === undefined ? Number.POSITIVE_INFINITY : clock.monotonicMs() - before.atMs;
      if (before && age < FRESH_MS) return before.user;
      try {
        return (await (running.get(key) ?? start(token, key, address))).user;
      } catch (error) {
        if (before && age < STALE_MS) return before.user;
        throw error;
      }
    },
  };
}
