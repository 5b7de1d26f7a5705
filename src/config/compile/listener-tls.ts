/**
 * Loads the TLS settings of a gateway. A certificate that does not match its key, or an unknown cipher, is an error
 * with its position.
 */

import { createSecureContext } from "node:tls";
import { peerInput } from "../../base/peer-inputs.ts";
import { checkCertificates, readCertificate as readPemCertificate } from "../../http/certificates.ts";
import { createHostTable } from "../../http/host.ts";
import type { ClientAuth, ListenerCertificate, ListenerTls } from "../../http/tls-listener.ts";
import { defined } from "../../json/json.ts";
import type { WrittenTls } from "../load/normal-config.ts";
import type { Path } from "../text/value-path.ts";

const FILE = peerInput("file/credentials");

export interface TlsReader {
  /** Returns the result of `read`, or reports its error at the field and returns undefined. */
  at<Value>(field: Path, read: () => Value): Value | undefined;
  readFile(path: string): string;
}

/** Returns undefined if the settings are invalid. */
export function readListenerTls(tls: WrittenTls, reader: TlsReader): ListenerTls | undefined {
  const { cert, key, minVersion = "TLSv1.2", ciphers } = tls;
  const written = [
    ...(cert === undefined || key === undefined ? [] : [{ path: [], cert, key, hosts: undefined }]),
    ...(tls.certificates ?? []).map((one, index) => ({
      path: ["certificates", index],
      cert: one.cert,
      key: one.key,
      hosts: one.hosts,
    })),
  ];
  const [first, ...others] = written.map(({ path, ...one }) => readCertificate(path, one, reader));
  const clientAuth = tls.clientAuth && readClientAuth(tls.clientAuth, reader);
  const floors = reader.at(ciphers === undefined ? [] : ["ciphers"], () =>
    createSecureContext({ minVersion, ...defined({ ciphers }) }),
  );
  if (first === undefined || others.includes(undefined) || floors === undefined) return undefined;
  if (tls.clientAuth !== undefined && clientAuth === undefined) return undefined;
  return {
    certificates: [first, ...others.filter((one) => one !== undefined)],
    minVersion,
    ciphers,
    clientAuth,
    ...(tls.parts === undefined ? {} : { parts: createHostTable(tls.parts.map((name) => [name, name])) }),
  };
}

function readCertificate(
  path: Path,
  written: { readonly cert: string; readonly key: string; readonly hosts: readonly string[] | undefined },
  reader: TlsReader,
): ListenerCertificate | undefined {
  const cert = reader.at([...path, "cert"], () => pemOf(written.cert, reader));
  const key = reader.at([...path, "key"], () => pemOf(written.key, reader));
  if (cert === undefined || key === undefined) return undefined;
  return reader.at(path, () => {
    checkCertificates({ cert, key });
    return { cert, key, hosts: written.hosts ?? namesIn(cert) };
  });
}

function readClientAuth({ ca, mode }: ClientAuth, reader: TlsReader): ClientAuth | undefined {
  return reader.at(["clientAuth", "ca"], () => {
    const text = pemOf(ca, reader);
    checkCertificates({ ca: text });
    return { ca: text, mode };
  });
}

function pemOf(written: string, reader: TlsReader): string {
  return written.trimStart().startsWith("-----BEGIN ") ? written : reader.readFile(written);
}

/** Parses a subjectAltName, for example `DNS:a.example.com, DNS:*.b.example.com, IP Address:10.0.0.1`. */
function namesIn(cert: string): string[] {
  const names = readPemCertificate(FILE, cert).subjectAltName ?? "";
  return names
    .split(", ")
    .filter((one) => one.startsWith("DNS:"))
    .map((one) => one.slice("DNS:".length).toLowerCase());
}
