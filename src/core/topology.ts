/**
 * Defines the compiled, immutable configuration, with listeners → routes → backends and their compiled policies.
 */
import type { EgressGuard } from "../http/egress-guard.ts";
import type { ListenerTls } from "../http/tls-listener.ts";
import type { Backend } from "./backend.ts";
import type { Exchange } from "./exchange.ts";
import type { CompiledScope, Protection } from "./policy.ts";

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
  /** The route does not serve these host names although `hostnames` covers them. */
  readonly except?: readonly string[];
  readonly matches: readonly RouteMatch[];
  readonly policies: CompiledScope;
  readonly backends: readonly WeightedBackend[];
  readonly totalWeight: number;
  /** The strictest protection of the policies and backends that apply to the route. */
  readonly protection: Protection;
  /** The override headers that the route's configuration or its gateway's policies name. */
  readonly namedOverrides: ReadonlySet<string>;
  /** True if a policy reads a credential of the client. */
  readonly readsCredential: boolean;
}

export interface Listener extends ListenerScopes {
  readonly name: string;
  readonly address: string | undefined;
  readonly port: number;
  readonly protocol: "HTTP" | "HTTPS" | "TCP" | "TLS";
  readonly tls: ListenerTls | undefined;
  readonly http2?: boolean | undefined;
  /** True if clients may send CONNECT requests. */
  readonly forwardProxy?: boolean | undefined;
  /** Set if trusted peers send PROXY protocol headers. */
  readonly proxyProtocol?: ProxyProtocol | undefined;
  /** Returns the position and the path of a field in the configuration, for example `mcp.port`. */
  writtenAt(field: "port" | "address"): string;
  readonly routes: readonly Route[];
  /**
   * Set if a route is protected: the gateway removes the override headers of clients, except those that a route or a
   * policy of the listener names.
   */
  readonly namedOverrides?: ReadonlySet<string> | undefined;
  /** Replaces the scopes for the host names of listeners that share the port. */
  readonly sections?: readonly ListenerSection[] | undefined;
  /** Set if the listener forwards connections instead of HTTP requests. It then has no routes and policies. */
  readonly tcp?: TcpService | undefined;
}

export interface ProxyProtocol {
  readonly versions: readonly ("v1" | "v2")[];
  /** If false, connections without a header are also accepted. */
  readonly isRequired: boolean;
}

export interface TcpService {
  /** True if the server name (SNI) selects the part. */
  readonly readsServerName: boolean;
  readonly parts: readonly TcpPart[];
}

/** Describes one listener of a port that forwards connections. */
export interface TcpPart {
  readonly name: string;
  /** The name is in lowercase and may begin with `*.`. It is undefined for all other names. */
  readonly hostname: string | undefined;
  /** If undefined, the bytes of the client are forwarded unchanged. */
  readonly tls: ListenerTls | undefined;
  readonly routes: readonly TcpRoute[];
  /** Gives the reason if every connection is rejected. */
  readonly closed: string | undefined;
}

export interface TcpRoute {
  readonly name: string;
  /** An empty list means any name. */
  readonly hostnames: readonly string[];
  readonly backends: readonly TcpBackend[];
}

export interface TcpBackend {
  readonly name: string;
  readonly weight: number;
  /** True if its share of the connections is rejected. */
  readonly isClosed: boolean;
  /** True if the server expects a PROXY protocol header (version 2). */
  readonly sendsProxyHeader: boolean;
  /** Returns `host:port` of each server. */
  addresses(serverName: string | undefined): readonly string[];
  readonly egress: EgressGuard;
}

export interface ListenerScopes {
  readonly policies: CompiledScope;
  /**
   * Applies to requests that no route matches. Contains the policies that routes inherit from the gateway, such as
   * cors.
   */
  readonly unmatched: CompiledScope;
}

export interface ListenerSection extends ListenerScopes {
  readonly name: string;
  /**
   * The name is in lowercase and may begin with `*.`. It is undefined for the listener that serves all other host
   * names.
   */
  readonly hostname: string | undefined;
}

export interface Topology {
  readonly listeners: readonly Listener[];
}
