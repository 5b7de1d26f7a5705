/**
 * The compiled configuration: listeners → routes → backends, each with compiled policies. Immutable: a reload builds a
 * new one and swaps it, and requests in flight finish on the one they started with.
 */
import type { ListenerTls } from "../http/tls-listener.ts";
import type { Backend } from "./backend.ts";
import type { Exchange } from "./exchange.ts";
import type { CompiledScope } from "./policy.ts";

/** Selects the requests of a canary backend, before the weights apply. */
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
  /** Host names that the route does not serve although `hostnames` covers them. */
  readonly except?: readonly string[];
  readonly matches: readonly RouteMatch[];
  readonly policies: CompiledScope;
  readonly backends: readonly WeightedBackend[];
  readonly totalWeight: number;
  /** The route or its gateway has authentication or authorization, so paths are checked more strictly. */
  readonly isProtected: boolean;
}

export interface Listener {
  readonly name: string;
  readonly address: string | undefined;
  readonly port: number;
  readonly protocol: "HTTP" | "HTTPS";
  readonly tls: ListenerTls | undefined;
  /** False disables HTTP/2. */
  readonly http2?: boolean | undefined;
  /** The position and the path (`mcp.port`) of one of its fields in the configuration. */
  writtenAt(field: "port" | "address"): string;
  readonly policies: CompiledScope;
  readonly routes: readonly Route[];
  /** The policies for requests that no route matches: those that routes inherit from the gateway, such as cors. */
  readonly unmatched: CompiledScope;
}

export interface Topology {
  readonly listeners: readonly Listener[];
}
