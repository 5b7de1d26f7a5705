/**
 * Who opened a session or holds a lane: only the same client goes on with it. Whom authentication let in counts
 * (`core/principal.ts`), never the bytes of a token that has a subject, so that a refreshed one keeps its session.
 * Where nobody was authenticated, a session belongs to whoever knows its id.
 */
import { createHash } from "node:crypto";
import type { Exchange } from "../../core/exchange.ts";

/** Undefined for a client that no policy has identified. */
export function ownerOf(exchange: Exchange): string | undefined {
  return exchange.identity.principal;
}

/**
 * Clients without a session share a lane, and so a server, only with themselves. One that was not identified is
 * known by its address and by what servers would be told of it: `headers` names what targets pass on.
 */
export function laneOwnerOf(exchange: Exchange, headers: readonly string[]): string {
  if (exchange.identity.principal !== undefined) return exchange.identity.principal;
  const { clientAddress, request } = exchange;
  const names = [...new Set(["authorization", ...headers])].sort();
  const shown = names.map((name) => request.headers.get(name) ?? null);
  const credential = shown.every((value) => value === null) ? "" : ` ${digest(JSON.stringify(shown))}`;
  return `address:${clientAddress}${credential}`;
}

export function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}
