/**
 * Who is signed in with a browser: the claims of the ID token, in the store under the digest of a random id that only the
 * browser knows. So a sign-out is final, replicas know the same users, and a copy of the store opens no session.
 */
import { createHash, randomBytes } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import type { Claims } from "../../core/facts.ts";
import { type Store, storeNamespace } from "../../store/store.ts";

const ID_BYTES = 32;
const ID = /^[A-Za-z0-9_-]{43}$/;

export interface BrowserSession {
  readonly claims: Claims;
  readonly principal: string;
}

export interface BrowserSessions {
  /** The id for the cookie. */
  open(session: BrowserSession, lifetimeMs: number): Promise<string>;
  find(id: string): Promise<BrowserSession | undefined>;
  end(id: string): Promise<void>;
}

/** `realm` tells policies apart: the session of one is nothing to another. */
export function createBrowserSessions(store: Store, clock: Clock, realm: string): BrowserSessions {
  const sessions = storeNamespace(store, "signins");
  const keyOf = (id: string): string => `${realm}.${createHash("sha256").update(id).digest("base64url")}`;
  return {
    async open(session, lifetimeMs) {
      const id = randomBytes(ID_BYTES).toString("base64url");
      const endsAtMs = clock.now() + lifetimeMs;
      await sessions.set(keyOf(id), JSON.stringify({ ...session, endsAtMs }), { expiresAtMs: endsAtMs });
      return id;
    },
    async find(id) {
      if (!ID.test(id)) return undefined;
      const kept = await sessions.get(keyOf(id));
      if (kept === undefined) return undefined;
      const { endsAtMs, ...session } = JSON.parse(kept) as BrowserSession & { readonly endsAtMs: number };
      return endsAtMs > clock.now() ? session : undefined;
    },
    async end(id) {
      if (ID.test(id)) await sessions.delete(keyOf(id));
    },
  };
}
