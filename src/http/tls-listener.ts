/**
 * TLS of a listener as it is configured: certificates, floors, and whether clients show certificates of their own. All
 * texts are PEM; they were checked when the configuration was loaded.
 */

import type { NamedEntries } from "./server-names.ts";

export interface ListenerCertificate {
  readonly cert: string;
  readonly key: string;
  /** Names in lower case, also `*.example.com`, for which clients are shown this one. */
  readonly hosts: readonly string[];
}

export interface ListenerTls {
  /** The first one is shown where no name fits. */
  readonly certificates: readonly [ListenerCertificate, ...ListenerCertificate[]];
  readonly minVersion: "TLSv1.2" | "TLSv1.3";
  /** OpenSSL's list; Node's if undefined. */
  readonly ciphers: string | undefined;
  readonly clientAuth: ClientAuth | undefined;
  /** Which part of the port a name belongs to, if it has several: a request must belong to that of its connection. */
  readonly parts?: NamedEntries<string> | undefined;
}

export interface ClientAuth {
  readonly ca: string;
  /** `optional`: clients without a certificate pass; one that does not verify is refused either way. */
  readonly mode: "require" | "optional";
}
