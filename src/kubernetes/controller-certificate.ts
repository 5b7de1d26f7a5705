/**
 * Creates the self-signed TLS certificate of the snapshot server. It is stored in a Secret, which all replicas read.
 */
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { isIP } from "node:net";
import type { Clock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { fieldsOf } from "../config/text/value-shapes.ts";
import { readCertificate } from "../http/certificates.ts";
import { type ApiClient, ApiError } from "./api-client.ts";

const NAME = "gateway-controller-certificate";
const DAYS = 3650;
const RENEW_BEFORE_MS = 90 * 86_400_000;

export async function controllerCertificate(
  client: ApiClient,
  clock: Clock,
  namespace: string,
  names: readonly string[],
): Promise<Certificate> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
  const found = await read(client, `${path}/${NAME}`);
  if (found && isUsable(found.certificate, names, clock.now())) return found.certificate;
  const made = selfSignedCertificate(names, clock.now(), DAYS);
  const body = {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: NAME, namespace, ...(found ? { resourceVersion: found.version } : {}) },
    type: "kubernetes.io/tls",
    data: { "tls.crt": Buffer.from(made.cert).toString("base64"), "tls.key": Buffer.from(made.key).toString("base64") },
  };
  try {
    if (found) await client.request({ method: "PUT", path: `${path}/${NAME}`, body });
    else await client.request({ method: "POST", path, body });
    return made;
  } catch (error) {
    // Another replica created the Secret first.
    const other = error instanceof ApiError && error.status === 409 ? await read(client, `${path}/${NAME}`) : undefined;
    if (other) return other.certificate;
    throw error;
  }
}

async function read(
  client: ApiClient,
  path: string,
): Promise<{ certificate: Certificate; version: string } | undefined> {
  try {
    const secret = fieldsOf(await client.request({ method: "GET", path }));
    const data = fieldsOf(secret.data);
    const text = (key: string): string => Buffer.from(String(data[key] ?? ""), "base64").toString();
    const version = String(fieldsOf(secret.metadata).resourceVersion);
    return { certificate: { cert: text("tls.crt"), key: text("tls.key") }, version };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

function isUsable({ cert }: Certificate, names: readonly string[], nowMs: number): boolean {
  try {
    const parsed = readCertificate(peerInput("file/credentials"), cert);
    const covers = (name: string): boolean => (parsed.checkHost(name) ?? parsed.checkIP(name)) !== undefined;
    return Date.parse(parsed.validTo) - nowMs > RENEW_BEFORE_MS && names.every(covers);
  } catch {
    return false;
  }
}

// Encodes X.509 v3 with ECDSA P-256 in DER, because Node.js has no API to create certificates.

interface Certificate {
  readonly cert: string;
  readonly key: string;
}

const SEQUENCE = 0x30;
const SET = 0x31;
const OID = {
  commonName: "550403",
  ecdsaWithSha256: "2a8648ce3d040302",
  basicConstraints: "551d13",
  keyUsage: "551d0f",
  extendedKeyUsage: "551d25",
  subjectAltName: "551d11",
  serverAuth: "2b06010505070301",
} as const;

/** The certificate is valid for `names`, which are host names and addresses. */
export function selfSignedCertificate(names: readonly string[], nowMs: number, days: number): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const algorithm = der(SEQUENCE, oid(OID.ecdsaWithSha256));
  const name = der(
    SEQUENCE,
    der(SET, der(SEQUENCE, oid(OID.commonName), der(0x0c, Buffer.from(names[0] ?? "gateway")))),
  );
  const serial = randomBytes(16);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  const body = der(
    SEQUENCE,
    der(0xa0, der(0x02, Buffer.of(2))),
    der(0x02, serial),
    algorithm,
    name,
    der(SEQUENCE, time(nowMs - 3_600_000), time(nowMs + days * 86_400_000)),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(
      0xa3,
      der(
        SEQUENCE,
        extension(OID.basicConstraints, true, der(SEQUENCE, der(0x01, Buffer.of(0xff)))),
        // The bits are digitalSignature and keyCertSign.
        extension(OID.keyUsage, true, der(0x03, Buffer.of(2, 0x84))),
        extension(OID.extendedKeyUsage, false, der(SEQUENCE, oid(OID.serverAuth))),
        extension(OID.subjectAltName, false, der(SEQUENCE, ...names.map(alternativeName))),
      ),
    ),
  );
  const signature = sign("sha256", body, privateKey);
  const whole = der(SEQUENCE, body, algorithm, der(0x03, Buffer.concat([Buffer.of(0), signature])));
  const lines = whole.toString("base64").replace(/(.{64})(?=.)/g, "$1\n");
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: "pkcs8", format: "pem" }) as string,
  };
}

function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size =
    length < 0x80
      ? Buffer.of(length)
      : length < 0x100
        ? Buffer.of(0x81, length)
        : Buffer.of(0x82, length >> 8, length & 0xff);
  return Buffer.concat([Buffer.of(tag), size, content]);
}

function oid(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, "hex"));
}

function extension(id: string, isCritical: boolean, value: Buffer): Buffer {
  return der(SEQUENCE, oid(id), ...(isCritical ? [der(0x01, Buffer.of(0xff))] : []), der(0x04, value));
}

/** X.509 requires UTCTime for dates before 2050 and GeneralizedTime from then on. */
function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, "");
  return Number(digits.slice(0, 4)) < 2050 ? der(0x17, Buffer.from(digits.slice(2))) : der(0x18, Buffer.from(digits));
}

function alternativeName(name: string): Buffer {
  const family = isIP(name);
  if (family === 0) return der(0x82, Buffer.from(name));
  if (family === 4) return der(0x87, Buffer.from(name.split(".").map(Number)));
  const { hostname } = new URL(`http://[${name}]/`);
  const [head = "", tail = ""] = hostname.slice(1, -1).split("::");
  const groups = (text: string): number[] =>
    text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16));
  const [before, after] = [groups(head), groups(tail)];
  const all = [...before, ...new Array<number>(8 - before.length - after.length).fill(0), ...after];
  return der(0x87, Buffer.from(all.flatMap((group) => [group >> 8, group & 0xff])));
}
