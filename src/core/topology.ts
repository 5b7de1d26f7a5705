/**
 * The compiled configuration: listeners → routes → backends, each with compiled policies. Immutable; a reload
 * builds a new one and swaps it, and requests in flight finish on the one they began with.
 */
import type { ListenerTls } from "../http/tls-listener.ts";
import type { Backend } from "./backend.ts";
import type { Exchange } from "./exchange.ts";
import type { CompiledScope } from "./policy.ts";

/** A backend on trial chooses its requests itself, before weights count. */
export interface Canary {
  takes(exchange: Exchange, random: () => number): boolean;
}

export interface WeightedBackend {
  readonly weight: number;
  readonly canary?: Canary;
  readonly backend: Backend;
  readonly policies: CompiledScope;
}

export interface RouteMatch {
  readonly path: { readonly exact: string } | { readonly pathPrefix: string } | { readonly regex: string };
  readonly method?: string;
  readonly headers?: readonly ValueMatch[];
  readonly query?: readonly ValueMatch[];
}

export interface ValueMatch {
  readonly name: string;
  readonly exact?: string;
  readonly regex?: string;
}

export interface Route {
  readonly name: string;
  readonly hostnames: readonly string[];
  /** Host names that are not its own, although `hostnames` covers them. */
  readonly except?: readonly string[];
  readonly matches: readonly RouteMatch[];
  readonly policies: CompiledScope;
  readonly backends: readonly WeightedBackend[];
  readonly totalWeight: number;
  /** Authentication or authorization stands on it (or on its gateway): paths are checked more strictly. */
  readonly isProtected: boolean;
}

export interface Listener {
  readonly name: string;
  readonly address: string | undefined;
  readonly port: number;
  readonly protocol: "HTTP" | "HTTPS";
  readonly tls: ListenerTls | undefined;
  /** False: HTTP/1.1 alone. */
  readonly http2?: boolean | undefined;
  /** Where a field of it stands in the configuration, and its path there (`mcp.port`). */
  writtenAt(field: "port" | "address"): string;
  readonly policies: CompiledScope;
  readonly routes: readonly Route[];
  /** For requests that no route matches: the gateway's policies that routes otherwise inherit, such as cors. */
  readonly unmatched: CompiledScope;
}

export interface Topology {
  readonly listeners: readonly Listener[];
}
