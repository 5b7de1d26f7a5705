/**
 * Checks certificates and keys, so that a mistake is reported with a reason. Also checks whether a server's certificate
 * has one of the expected names.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { createSecureContext, type PeerCertificate } from "node:tls";
import { InputError, type PeerInput, peerInput } from "../base/peer-inputs.ts";
import { decodeString } from "../json/syntax.ts";

const FILE = peerInput("file/credentials");
const BACKEND = peerInput("backend/certificate");

interface CertificateTexts {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

export function checkCertificates({ ca, cert, key }: CertificateTexts): void {
  if (ca !== undefined) check("the root", () => readCertificate(FILE, ca));
  if (cert !== undefined) check("the certificate", () => readCertificate(FILE, cert));
  if (key !== undefined) check("the private key", () => readPrivateKey(FILE, key));
  if (cert !== undefined && key !== undefined)
    check("certificate and key (do they match?)", () => createSecureContext({ cert, key }));
}

/** Throws an Error if the text or bytes are no certificate, or exceed the limit. Of several, the first is read. */
export function readCertificate(input: PeerInput<"PEM">, pem: string | Buffer): X509Certificate {
  if (pem.length > input.maxBytes) throw InputError.tooLarge(input);
  return new X509Certificate(pem);
}

/** Throws an Error if the text is no private key, or exceeds the limit. The message may quote the key. */
export function readPrivateKey(input: PeerInput<"PEM">, pem: string): KeyObject {
  if (pem.length > input.maxBytes) throw InputError.tooLarge(input);
  return createPrivateKey(pem);
}

function check(what: string, read: () => unknown): void {
  try {
    read();
  } catch (error) {
    // OpenSSL's messages look like `error:0480006C:PEM routines::no start line`.
    const reason = (error as Error).message.replace(/^error:[0-9A-F]+:/, "").replace("::", ": ");
    throw new Error(`${what} cannot be used: ${reason}`);
  }
}

/**
 * Matches one entry of `DNS:a.example.com, URI:spiffe://x/y`. Node writes a value with a comma or a quote as a JSON
 * string.
 */
const ENTRY = /([A-Za-z][A-Za-z ]*):("(?:[^"\\]|\\.)*"|[^,"]*)(?:, |$)/y;

/**
 * Returns whether a certificate has one of the DNS names or URIs (for example SPIFFE IDs). Only subject alternative
 * names count.
 */
export function hasOneName(raw: Buffer, names: readonly string[]): boolean {
  const certificate = readCertificate(BACKEND, raw);
  const known = alternativeNames(certificate.subjectAltName ?? "");
  return names.some((name) => {
    if (name.includes("://")) return known.includes(`URI:${name}`);
    // An expected wildcard must be in the certificate literally. For other names, wildcards of the certificate match.
    if (name.startsWith("*.")) return known.includes(`DNS:${name.toLowerCase()}`);
    return certificate.checkHost(name, { subject: "never" }) !== undefined;
  });
}

/** Checks the names instead of the host to which the connection leads. */
export function namesChecked(names: readonly string[]): (host: string, shown: PeerCertificate) => Error | undefined {
  return (_host, { raw }) =>
    hasOneName(raw, names) ? undefined : new Error(`the certificate has none of the names ${names.join(", ")}`);
}

export function alternativeNames(text: string): string[] {
  const names: string[] = [];
  ENTRY.lastIndex = 0;
  for (let at = 0; at < text.length; at = ENTRY.lastIndex) {
    ENTRY.lastIndex = at;
    const found = ENTRY.exec(text);
    if (found === null) return [];
    const [, type = "", value = ""] = found;
    const plain = value.startsWith('"') ? decodeString(value.slice(1, -1)) : value;
    names.push(`${type}:${type === "DNS" ? plain.toLowerCase() : plain}`);
  }
  return names;
}
