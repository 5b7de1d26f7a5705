/**
 * Defines how the pipeline gets the server of a client's session from the policy `sessionPersistence`.
 */
import type { Exchange } from "./exchange.ts";

/** Names the servers of a backend in the same way on every replica. */
export interface ServerGroup {
  readonly name: string;
  /** Returns `host:port` of each server that `call` can select. The array identity changes only if the contents do. */
  addresses?(): readonly string[];
}

/** Has the fields of a route that session persistence reads. */
export interface PersistentRoute {
  readonly name: string;
  readonly matches: readonly {
    readonly path: { readonly exact?: string; readonly pathPrefix?: string; readonly regex?: string };
  }[];
  readonly backends: readonly { readonly backend: { readonly routing?: { readonly servers?: ServerGroup } } }[];
}

export interface PersistentServer {
  /** The index of the backend in the route. */
  readonly index: number;
  /** Undefined if the backend does not select between addresses. */
  readonly address: string | undefined;
}

export interface SessionPersistence {
  /** Returns the current server of the client's session. A retry has none, because it may use any server. */
  find(exchange: Exchange, route: PersistentRoute): PersistentServer | undefined;
}
