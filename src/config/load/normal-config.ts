/**
 * Defines the normalized configuration, to which all layouts are converted and which the compiler reads.
 */
import type { BackendProtocol } from "../../core/backend.ts";
import type { RouteMatch } from "../../core/topology.ts";
import type { CanaryConfig, WrittenProcess } from "../schema/schema.ts";
import { type Path, pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";

export interface Place {
  readonly document: SourceDocument;
  readonly path: Path;
}

export interface PlacedPolicy {
  readonly kind: string;
  readonly config: unknown;
  /** Contains the policy as written under `policies`, if the source has another form. */
  readonly written?: unknown;
  readonly isResource?: boolean;
  readonly owner: string;
  readonly place: Place;
}

/** Certificates and keys are file paths or PEM. */
export interface WrittenTls {
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  readonly certificates?:
    | readonly { readonly cert: string; readonly key: string; readonly hosts?: readonly string[] | undefined }[]
    | undefined;
  readonly minVersion?: "TLSv1.2" | "TLSv1.3" | undefined;
  readonly ciphers?: string | undefined;
  readonly clientAuth?: { readonly ca: string; readonly mode: "require" | "optional" } | undefined;
  /** Lists the host names of listeners that share the port. */
  readonly parts?: readonly string[] | undefined;
}

export interface WrittenProxyProtocol {
  readonly version: "v1" | "v2" | "all";
  readonly mode: "strict" | "optional";
}

export interface NormalGateway {
  readonly name: string;
  readonly port: number;
  readonly address: string | undefined;
  readonly protocol: "HTTP" | "HTTPS" | "TCP" | "TLS";
  readonly forwardProxy?: boolean | undefined;
  readonly proxyProtocol?: WrittenProxyProtocol | undefined;
  /** Set if the gateway forwards connections instead of HTTP requests. */
  readonly tcp?: readonly NormalTcpPart[] | undefined;
  readonly tls: WrittenTls | undefined;
  /** False allows only HTTP/1.1. */
  readonly http2?: boolean | undefined;
  readonly policies: PlacedPolicy[];
  /** Describes the listeners of a Gateway document that share the port, if they have their own policies. */
  readonly sections?: readonly NormalSection[] | undefined;
  readonly place: Place;
  /** Gives the reason if every request is rejected. */
  closed?: string;
}

/** Describes one listener of a port that forwards connections. Host names select it by the server name (SNI). */
export interface NormalTcpPart {
  readonly name: string;
  readonly hostname: string | undefined;
  readonly tls: WrittenTls | undefined;
  readonly routes: NormalTcpRoute[];
  closed?: string;
}

export interface NormalTcpRoute {
  readonly name: string;
  readonly hostnames: readonly string[];
  readonly backends: readonly {
    readonly name: string;
    /** If undefined, the addresses are the endpoints of the Service `name`. */
    readonly address: string | undefined;
    /** Set if the server name (SNI) is the server. */
    readonly dynamic?: { readonly port: number; readonly allow: readonly string[] } | undefined;
    readonly weight: number;
    readonly isClosed: boolean;
    readonly sendsProxyHeader?: boolean | undefined;
  }[];
}

export interface NormalSection {
  readonly name: string;
  readonly hostname: string | undefined;
  readonly policies: PlacedPolicy[];
  closed?: string;
}

export interface InnerScope {
  readonly name: string;
  readonly policies: readonly PlacedPolicy[];
}

export interface NormalBackend {
  readonly key: string;
  readonly name: string;
  readonly weight: number;
  readonly protocol?: BackendProtocol | undefined;
  readonly canary?: CanaryConfig | undefined;
  readonly config: unknown;
  readonly policies: PlacedPolicy[];
  readonly inner?: readonly InnerScope[] | undefined;
  readonly place: Place;
  /** Gives the reason if the backend rejects its share of the requests. */
  closed?: string;
}

export interface NormalRoute {
  readonly name: string;
  readonly gateways: readonly string[];
  readonly hostnames: readonly string[];
  /** Other listeners of the same port handle these host names. */
  readonly except?: readonly string[];
  readonly section?: string;
  matches: RouteMatch[];
  readonly policies: PlacedPolicy[];
  readonly backends: readonly NormalBackend[];
  readonly place: Place;
  closed?: string;
}

export interface NormalConfig {
  readonly process: WrittenProcess;
  readonly services: Readonly<Record<string, string | Readonly<Record<string, unknown>>>>;
  readonly gateways: NormalGateway[];
  readonly routes: NormalRoute[];
}

export function backendName(route: string, index: number): string {
  return `${route}/backend${index}`;
}

/** Returns the position and path of a field. If the field is absent, the position is that of the nearest parent. */
export function fieldPlace({ document, path }: Place, field: string): string {
  const whole = [...path, field];
  const at = document.position(whole);
  return `${at === undefined ? document.file : `${at.file}:${at.line}:${at.column}`}: ${pathText(whole)}`;
}
