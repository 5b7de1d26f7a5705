/**
 * Limits the login endpoints, which need no token. Each client has a limit of its own, and the listener has one for the
 * requests that reach the provider, so that invalid requests of one client do not stop the logins of others.
 */
import { type OwnedKey, ownedKey } from "../../base/owner.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { CompileEnv } from "../../core/policy.ts";
import { knownAddress } from "../../core/source.ts";
import { clientNetwork } from "../../http/host.ts";
import { openMinuteCounts } from "../passwords/minute-counts.ts";

const REQUESTS_PER_MINUTE = 600;
const REQUESTS_PER_CLIENT = 120;

/** Registrations include the metadata documents of clients, which the gateway fetches in place of a registration. */
export type LoginRequest = "registration" | "token" | "discovery";

export interface LoginLimit {
  /** Charges the client, before the request is read. */
  enter(kind: LoginRequest, exchange: Pick<Exchange, "listener" | "source">): void;
  /** Charges the listener, when a valid request is about to reach the provider. */
  forward(kind: LoginRequest, listener: string): void;
}

/** All routes of one owner on a listener share its limits. */
export function openLoginLimit(env: Pick<CompileEnv, "acquireShared" | "clock" | "owner">): LoginLimit {
  const counts = openMinuteCounts(env);
  const keyOf = (kind: LoginRequest, ...counted: readonly string[]): OwnedKey =>
    ownedKey(env.owner, `login ${kind} ${JSON.stringify(counted)}`);

  function take(key: OwnedKey, max: number, detail: string): void {
    const { count, resetSeconds } = counts.count(key);
    if (count >= max)
      throw new GatewayError("rate_limited", { detail, headers: { "retry-after": String(resetSeconds) } });
    counts.add(key);
  }

  return {
    enter(kind, { listener, source }) {
      const address = knownAddress(source);
      if (address === undefined) return;
      const key = keyOf(kind, listener, clientNetwork(address));
      take(key, REQUESTS_PER_CLIENT, `more than ${REQUESTS_PER_CLIENT} ${kind} requests of a client in a minute`);
    },
    forward(kind, listener) {
      const detail = `more than ${REQUESTS_PER_MINUTE} ${kind} requests in a minute on ${listener}`;
      take(keyOf(kind, listener), REQUESTS_PER_MINUTE, detail);
    },
  };
}
