/**
 * Creates the self-signed TLS certificate of the snapshot server. It is stored in a Secret, which all replicas read.
 */
import type { Clock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { fieldsOf } from "../config/text/value-shapes.ts";
import { readCertificate } from "../http/certificates.ts";
import { defined } from "../json/json.ts";
import { type ApiClient, ApiError } from "./api-client.ts";
import type { CertificateAndKey } from "./self-signed-certificate.ts";

export const CERTIFICATE_NAME = "gateway-controller-certificate";
const DAYS = 3650;
const RENEW_BEFORE_MS = 90 * 86_400_000;

export async function controllerCertificate(
  client: ApiClient,
  clock: Clock,
  namespace: string,
  names: readonly string[],
): Promise<CertificateAndKey> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
  const found = await read(client, `${path}/${CERTIFICATE_NAME}`);
  if (found && isUsable(found.certificate, names, clock.now())) return found.certificate;
  const { selfSignedCertificate } = await import("./self-signed-certificate.ts");
  const made = selfSignedCertificate(names, clock.now(), DAYS);
  try {
    const body = secretOf(namespace, made, found?.version);
    if (found) await client.request({ method: "PUT", path: `${path}/${CERTIFICATE_NAME}`, body });
    else await client.request({ method: "POST", path, body });
    return made;
  } catch (error) {
    // Another replica created the Secret first.
    const other =
      error instanceof ApiError && error.status === 409 ? await read(client, `${path}/${CERTIFICATE_NAME}`) : undefined;
    if (other) return other.certificate;
    throw error;
  }
}

/** Creates the Secret again with the certificate that is in use. Throws an ApiError 409 if it exists. */
export async function restoreCertificate(
  client: ApiClient,
  namespace: string,
  certificate: CertificateAndKey,
): Promise<void> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
  await client.request({ method: "POST", path, body: secretOf(namespace, certificate, undefined) });
}

function secretOf(namespace: string, { cert, key }: CertificateAndKey, resourceVersion: string | undefined): object {
  return {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: CERTIFICATE_NAME, namespace, ...defined({ resourceVersion }) },
    type: "kubernetes.io/tls",
    data: { "tls.crt": Buffer.from(cert).toString("base64"), "tls.key": Buffer.from(key).toString("base64") },
  };
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
