/**
 * Whether a certificate has one of several names: DNS names, or URIs such as those of SPIFFE. Only subject alternative
 * names count. A text that cannot be read has no names.
 */
import { X509Certificate } from "node:crypto";

/** `DNS:a.example.com, URI:spiffe://x/y`; a value with a comma or a quote is written as a JSON string. */
const ENTRY = /([A-Za-z][A-Za-z ]*):("(?:[^"\\]|\\.)*"|[^,"]*)(?:, |$)/y;

export function hasOneName(raw: Buffer, names: readonly string[]): boolean {
  const certificate = new X509Certificate(raw);
  const known = alternativeNames(certificate.subjectAltName ?? "");
  return names.some((name) => {
    if (name.includes("://")) return known.includes(`URI:${name}`);
    // A wildcard that is asked for must be in it; of others the certificate's own wildcards count.
    if (name.startsWith("*.")) return known.includes(`DNS:${name.toLowerCase()}`);
    return certificate.checkHost(name, { subject: "never" }) !== undefined;
  });
}

export function alternativeNames(text: string): string[] {
  const names: string[] = [];
  ENTRY.lastIndex = 0;
  for (let at = 0; at < text.length; at = ENTRY.lastIndex) {
    ENTRY.lastIndex = at;
    const found = ENTRY.exec(text);
    if (found === null) return [];
    const [, type = "", value = ""] = found;
    const plain = value.startsWith('"') ? (JSON.parse(value) as string) : value;
    names.push(`${type}:${type === "DNS" ? plain.toLowerCase() : plain}`);
  }
  return names;
}
