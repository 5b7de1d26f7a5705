/**
 * Whether certificate and key files are what they should be, found out at configuration load: a mistake stops the
 * load with the reason instead of failing every connection.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";

export interface CertificateTexts {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** Throws an Error that names the part. */
export function checkCertificates({ ca, cert, key }: CertificateTexts): void {
  if (ca !== undefined) check("the root", () => new X509Certificate(ca));
  if (cert !== undefined) check("the certificate", () => new X509Certificate(cert));
  if (key !== undefined) check("the private key", () => createPrivateKey(key));
  if (cert !== undefined && key !== undefined)
    check("certificate and key (do they match?)", () => createSecureContext({ cert, key }));
}

function check(what: string, read: () => unknown): void {
  try {
    read();
  } catch (error) {
    // OpenSSL's own text: `error:0480006C:PEM routines::no start line`.
    const reason = (error as Error).message.replace(/^error:[0-9A-F]+:/, "").replace("::", ": ");
    throw new Error(`${what} cannot be used: ${reason}`);
  }
}
