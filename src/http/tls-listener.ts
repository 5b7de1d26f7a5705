/**
 * Defines the TLS settings of a listener. Certificates and keys are PEM.
 */
import type { HostTable } from "./host.ts";

export interface ListenerCertificate {
  readonly cert: string;
  readonly key: string;
  readonly hosts: readonly string[];
}

export interface ListenerTls {
  /** The first certificate is used if no name matches. */
  readonly certificates: readonly [ListenerCertificate, ...ListenerCertificate[]];
  readonly minVersion: "TLSv1.2" | "TLSv1.3";
  /** The list is in OpenSSL's format. If it is undefined, Node's default applies. */
  readonly ciphers: string | undefined;
  readonly clientAuth: ClientAuth | undefined;
  /** Maps a server name to the host name of its listener if several listeners share the port. */
  readonly parts?: HostTable<string> | undefined;
}

export interface ClientAuth {
  readonly ca: string;
  /** `optional` accepts clients without a certificate. Both modes reject an invalid certificate. */
  readonly mode: "require" | "optional";
}
