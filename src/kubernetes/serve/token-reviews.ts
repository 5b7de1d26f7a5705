/**
 * Who asks for a snapshot: a ServiceAccount whose token the API server vouches for, made for this controller and for
 * nobody else. A verdict is kept for a minute; while the server is away, the last one counts for longer.
 */
import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { fieldsOf, listOf } from "../../config/text/value-shapes.ts";
import type { ApiClient } from "../client/api-client.ts";

/** The audience of the tokens: one for the API server, or for somebody else, is of no use here. */
export const TOKEN_AUDIENCE = "gateway-controller";
const FRESH_MS = 60_000;
const STALE_MS = 600_000;
const MAX_KNOWN = 10_000;

export interface TokenReviews {
  /** The user's name, or undefined if the token is not good. Rejects if nobody can say. */
  userOf(token: string): Promise<string | undefined>;
}

export function createTokenReviews(client: ApiClient, clock: Clock): TokenReviews {
  const known = new Map<string, { readonly user: string | undefined; readonly atMs: number }>();
  return {
    async userOf(token) {
      const key = createHash("sha256").update(token).digest("base64");
      const before = known.get(key);
      const age = before === undefined ? Number.POSITIVE_INFINITY : clock.monotonicMs() - before.atMs;
      if (before && age < FRESH_MS) return before.user;
      try {
        const body = {
          apiVersion: "authentication.k8s.io/v1",
          kind: "TokenReview",
          spec: { token, audiences: [TOKEN_AUDIENCE] },
        };
        const path = "/apis/authentication.k8s.io/v1/tokenreviews";
        const status = fieldsOf(fieldsOf(await client.request({ method: "POST", path, body })).status);
        const isGood = status.authenticated === true && listOf(status.audiences).includes(TOKEN_AUDIENCE);
        const { username } = fieldsOf(status.user);
        const user = isGood && typeof username === "string" ? username : undefined;
        if (known.size >= MAX_KNOWN) known.clear();
        known.set(key, { user, atMs: clock.monotonicMs() });
        return user;
      } catch (error) {
        if (before && age < STALE_MS) return before.user;
        throw error;
      }
    },
  };
}
