/**
 * Creates X.509 v3 certificates with ECDSA P-256, because Node.js has no API for them. It is loaded at its first use, so
 * that other programs do not load the ASN.1 library.
 */
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { isIP } from "node:net";
import { AsnConvert, OctetString } from "@peculiar/asn1-schema";
import {
  AlgorithmIdentifier,
  AttributeTypeAndValue,
  AttributeValue,
  BasicConstraints,
  Certificate,
  ExtendedKeyUsage,
  Extension,
  Extensions,
  GeneralName,
  id_ce_basicConstraints,
  id_ce_extKeyUsage,
  id_ce_keyUsage,
  id_ce_subjectAltName,
  id_kp_serverAuth,
  KeyUsage,
  KeyUsageFlags,
  Name,
  RelativeDistinguishedName,
  SubjectAlternativeName,
  SubjectPublicKeyInfo,
  TBSCertificate,
  Validity,
  Version,
} from "@peculiar/asn1-x509";

export interface CertificateAndKey {
  readonly cert: string;
  readonly key: string;
}

const ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2";
const COMMON_NAME = "2.5.4.3";
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** The certificate is valid for `names`, which are host names and addresses. */
export function selfSignedCertificate(names: readonly string[], nowMs: number, days: number): CertificateAndKey {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const algorithm = new AlgorithmIdentifier({ algorithm: ECDSA_WITH_SHA256 });
  const name = commonName(names[0] ?? "gateway");
  const spki = publicKey.export({ type: "spki", format: "der" });
  const tbsCertificate = new TBSCertificate({
    version: Version.v3,
    serialNumber: serialNumber(),
    signature: algorithm,
    issuer: name,
    validity: new Validity({ notBefore: new Date(nowMs - HOUR_MS), notAfter: new Date(nowMs + days * DAY_MS) }),
    subject: name,
    subjectPublicKeyInfo: AsnConvert.parse(spki, SubjectPublicKeyInfo),
    extensions: new Extensions([
      extension(id_ce_basicConstraints, true, new BasicConstraints({ cA: true })),
      extension(id_ce_keyUsage, true, new KeyUsage(KeyUsageFlags.digitalSignature | KeyUsageFlags.keyCertSign)),
      extension(id_ce_extKeyUsage, false, new ExtendedKeyUsage([id_kp_serverAuth])),
      extension(id_ce_subjectAltName, false, new SubjectAlternativeName(names.map(alternativeName))),
    ]),
  });
  const signature = sign("sha256", Buffer.from(AsnConvert.serialize(tbsCertificate)), privateKey);
  const certificate = new Certificate({
    tbsCertificate,
    signatureAlgorithm: algorithm,
    signatureValue: arrayBuffer(signature),
  });
  const lines = Buffer.from(AsnConvert.serialize(certificate))
    .toString("base64")
    .replace(/(.{64})(?=.)/g, "$1\n");
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: "pkcs8", format: "pem" }) as string,
  };
}

function commonName(text: string): Name {
  const value = new AttributeValue({ utf8String: text });
  return new Name([new RelativeDistinguishedName([new AttributeTypeAndValue({ type: COMMON_NAME, value })])]);
}

/** The number is positive and has 16 bytes. */
function serialNumber(): ArrayBuffer {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return arrayBuffer(bytes);
}

function extension(extnID: string, critical: boolean, value: object): Extension {
  return new Extension({ extnID, critical, extnValue: new OctetString(AsnConvert.serialize(value)) });
}

function alternativeName(name: string): GeneralName {
  const family = isIP(name);
  if (family === 0) return new GeneralName({ dNSName: name });
  // The library does not read an IPv4 address inside an IPv6 address. A URL writes it in groups.
  return new GeneralName({ iPAddress: family === 4 ? name : new URL(`http://[${name}]/`).hostname.slice(1, -1) });
}

function arrayBuffer(bytes: Buffer): ArrayBuffer {
  return new Uint8Array(bytes).buffer;
}
