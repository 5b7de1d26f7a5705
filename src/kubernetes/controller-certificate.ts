/**
 * Creates the self-signed TLS certificate of the snapshot server. It is stored in a Secret, which all replicas read.
 */
import type { Clock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { fieldsOf } from "../config/text/value-shapes.ts";
import { readCertificate } from "../http/certificates.ts";
import { type ApiClient, ApiError } from "./api-client.ts";
import type { CertificateAndKey } from "./self-signed-certificate.ts";

const NAME = "gateway-controller-certificate";
const DAYS = 3650;
const RENEW_BEFORE_MS = 90 * 86_400_000;

export async function controllerCertificate(
  client: ApiClient,
  clock: Clock,
  namespace: string,
  names: readonly string[],
): Promise<CertificateAndKey> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
  const found = await read(client, `${path}/${NAME}`);
  if (found && isUsable(found.certificate, names, clock.now())) return found.certificate;
  const { selfSignedCertificate } = await import("./self-signed-certificate.ts");
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
): Promise<{ certificate: CertificateAndKey; version: string } | undefined> {
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

function isUsable({ cert }: CertificateAndKey, names: readonly string[], nowMs: number): boolean {
  try {
    const parsed = readCertificate(peerInput("file/credentials"), cert);
    const covers = (name: string): boolean => (parsed.checkHost(name) ?? parsed.checkIP(name)) !== undefined;
    return Date.parse(parsed.validTo) - nowMs > RENEW_BEFORE_MS && names.every(covers);
  } catch {
    return false;
  }
}
