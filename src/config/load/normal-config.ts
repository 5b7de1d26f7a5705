/**
 * The one internal form of a configuration, whichever way it was written: what normalising makes and compiling reads.
 */
import type { BackendProtocol } from "../../core/backend.ts";
import type { RouteMatch } from "../../core/topology.ts";
import type { CanaryConfig, WrittenProcess } from "../schema/schema.ts";
import { type Path, pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";

/** Where something was written: for messages, and for paths relative to its file. */
export interface Place {
  readonly document: SourceDocument;
  readonly path: Path;
}

export interface PlacedPolicy {
  readonly kind: string;
  readonly config: unknown;
  /** As it would be written under `policies`, where the place in the file says it otherwise. */
  readonly written?: unknown;
  /** It comes from a resource document: a failure becomes that document's status. */
  readonly isResource?: boolean;
  /** What it stands on, for example `route tools`: the key of what it keeps across reloads. */
  readonly owner: string;
  readonly place: Place;
}

/** Files, or PEM texts themselves. */
export interface WrittenTls {
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  readonly certificates?:
    | readonly { readonly cert: string; readonly key: string; readonly hosts?: readonly string[] | undefined }[]
    | undefined;
  readonly minVersion?: "TLSv1.2" | "TLSv1.3" | undefined;
  readonly ciphers?: string | undefined;
  readonly clientAuth?: { readonly ca: string; readonly mode: "require" | "optional" } | undefined;
  /** Host names that share the port and are kept apart; whatever fits none of them is one part more. */
  readonly parts?: readonly string[] | undefined;
}

export interface NormalGateway {
  readonly name: string;
  readonly port: number;
  readonly address: string | undefined;
  readonly protocol: "HTTP" | "HTTPS";
  readonly tls: WrittenTls | undefined;
  /** False: HTTP/1.1 alone. */
  readonly http2?: boolean | undefined;
  readonly policies: PlacedPolicy[];
  readonly place: Place;
  /** Why every request is refused, if it is. */
  closed?: string;
}

export interface InnerScope {
  /** As in `model fast`. */
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
  /** Policies inside of it, for example of one model. */
  readonly inner?: readonly InnerScope[] | undefined;
  readonly place: Place;
  /** Why it refuses its share of the requests, if it does. */
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
  /** What stands behind references to a Service, as written. */
  readonly services: Readonly<Record<string, string | Readonly<Record<string, unknown>>>>;
  readonly gateways: NormalGateway[];
  readonly routes: NormalRoute[];
}

/** Also of a field that nobody wrote: then it is where its section begins. */
export function fieldPlace({ document, path }: Place, field: string): string {
  const whole = [...path, field];
  const at = document.position(whole);
  return `${at === undefined ? document.file : `${at.file}:${at.line}:${at.column}`}: ${pathText(whole)}`;
}
