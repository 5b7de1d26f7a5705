/**
 * The normalized configuration: the one form that all layouts are converted to and that the compiler reads.
 */
import type { BackendProtocol } from "../../core/backend.ts";
import type { RouteMatch } from "../../core/topology.ts";
import type { CanaryConfig, WrittenProcess } from "../schema/schema.ts";
import { type Path, pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";

/** The source position, for messages and relative paths. */
export interface Place {
  readonly document: SourceDocument;
  readonly path: Path;
}

export interface PlacedPolicy {
  readonly kind: string;
  readonly config: unknown;
  /** The policy as written under `policies`, if the source has another form. */
  readonly written?: unknown;
  /** Set for a resource document, whose status reports a failure. */
  readonly isResource?: boolean;
  /** The owner, for example `route tools`; part of the key of resources that survive reloads. */
  readonly owner: string;
  readonly place: Place;
}

/** File paths, or PEM text. */
export interface WrittenTls {
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  readonly certificates?:
    | readonly { readonly cert: string; readonly key: string; readonly hosts?: readonly string[] | undefined }[]
    | undefined;
  readonly minVersion?: "TLSv1.2" | "TLSv1.3" | undefined;
  readonly ciphers?: string | undefined;
  readonly clientAuth?: { readonly ca: string; readonly mode: "require" | "optional" } | undefined;
  /** Host names with separate routes on the same port; other host names form one more group. */
  readonly parts?: readonly string[] | undefined;
}

export interface NormalGateway {
  readonly name: string;
  readonly port: number;
  readonly address: string | undefined;
  readonly protocol: "HTTP" | "HTTPS";
  readonly tls: WrittenTls | undefined;
  /** False for HTTP/1.1 only. */
  readonly http2?: boolean | undefined;
  readonly policies: PlacedPolicy[];
  readonly place: Place;
  /** Why every request is rejected, if it is. */
  closed?: string;
}

export interface InnerScope {
  /** For example `model fast`. */
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
  readonly policies: readonly PlacedPolicy[];
  /** Nested policies, for example of one model. */
  readonly inner?: readonly InnerScope[] | undefined;
  readonly place: Place;
  /** Why the backend rejects its share of the requests, if it does. */
  closed?: string;
}

export interface NormalRoute {
  readonly name: string;
  readonly gateways: readonly string[];
  readonly hostnames: readonly string[];
  /** Host names that belong to another listener of the same port. */
  readonly except?: readonly string[];
  matches: RouteMatch[];
  readonly policies: PlacedPolicy[];
  readonly backends: readonly NormalBackend[];
  readonly place: Place;
  closed?: string;
}

export interface NormalConfig {
  readonly process: WrittenProcess;
  /** The `services` section of the configuration, verbatim. Each route that references a service validates it. */
  readonly services: Readonly<Record<string, string | Readonly<Record<string, unknown>>>>;
  readonly gateways: NormalGateway[];
  readonly routes: NormalRoute[];
}

/**
 * For an absent field, the position of its section. For problems found when something is opened, such as a port in use.
 */
export function fieldPlace({ document, path }: Place, field: string): string {
  const whole = [...path, field];
  const at = document.position(whole);
  return `${at === undefined ? document.file : `${at.file}:${at.line}:${at.column}`}: ${pathText(whole)}`;
}
