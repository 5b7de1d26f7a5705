/**
 * The certificate of the controller's stream, kept in a Secret beside the controller, so that all replicas and the next
 * one have the same. Who comes first makes it.
 */
import { X509Certificate } from "node:crypto";
import { fieldsOf } from "../../config/text/value-shapes.ts";
import type { Clock } from "../../lib/process/clock.ts";
import type { ApiClient } from "../client/api-client.ts";
import { ApiError } from "../client/api-error.ts";
import { type Certificate, selfSignedCertificate } from "../serve/self-signed-certificate.ts";

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
    // Another replica was faster.
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
    const parsed = new X509Certificate(cert);
    const covers = (name: string): boolean => (parsed.checkHost(name) ?? parsed.checkIP(name)) !== undefined;
    return Date.parse(parsed.validTo) - nowMs > RENEW_BEFORE_MS && names.every(covers);
  } catch {
    return false;
  }
}
