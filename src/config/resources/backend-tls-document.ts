/**
 * A BackendTLSPolicy (gateway.networking.k8s.io): requests to a Service go over TLS, with the certificates that a ConfigMap
 * has. Of two for the same port the older one counts. One that cannot be honoured closes its Service: without TLS, or
 * without looking at the certificate, is not what was asked for.
 */
import { checkCertificates } from "../../http/certificates.ts";
import { type Cluster, type TargetedService, targetedServices } from "../cluster/cluster.ts";
import { type KubernetesObject, objectKey, specOf } from "../cluster/kubernetes-object.ts";
import { type Fields, fieldsOf, listOf, textOf } from "../text/value-shapes.ts";
import type { ResourceDocument, Verdict } from "./documents.ts";

export interface ReadTlsPolicy {
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  /** As `backendTLS` has it; `root` is the text. */
  readonly tls: BackendTls | undefined;
}

interface BackendTls {
  readonly root?: string;
  readonly hostname: string;
  readonly subjectAltNames?: readonly string[];
}

const ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "The policy is valid" };
const RESOLVED: Verdict = { isTrue: true, reason: "ResolvedRefs", message: "All references resolved" };

export function readTlsPolicy(policy: KubernetesObject, cluster: Cluster): ReadTlsPolicy {
  const { hostname, subjectAltNames, caCertificateRefs, wellKnownCACertificates } = fieldsOf(specOf(policy).validation);
  const no = (message: string, resolvedRefs = RESOLVED, reason = "Invalid"): ReadTlsPolicy => ({
    accepted: { isTrue: false, reason, message },
    resolvedRefs,
    tls: undefined,
  });
  const name = textOf(hostname);
  if (name === undefined) return no("spec.validation.hostname: required field is missing");
  const names = readNames(subjectAltNames);
  if (names === undefined) return no("spec.validation.subjectAltNames: expected a hostname or a URI each");
  const tls = { hostname: name, ...(names.length === 0 ? {} : { subjectAltNames: names }) };
  const references = listOf(caCertificateRefs).map(fieldsOf);
  if (references.length === 0)
    return wellKnownCACertificates === "System"
      ? { accepted: ACCEPTED, resolvedRefs: RESOLVED, tls }
      : no("spec.validation: caCertificateRefs, or wellKnownCACertificates with the value System, are needed");
  const read = references.map((reference) => readRoot(reference, policy.metadata.namespace ?? "", cluster));
  const roots = read.flatMap((one) => (typeof one === "string" ? [one] : []));
  const resolvedRefs = read.find((one) => typeof one !== "string") ?? RESOLVED;
  if (roots.length === 0) return no(resolvedRefs.message, resolvedRefs, "NoValidCACertificate");
  return { accepted: ACCEPTED, resolvedRefs, tls: { ...tls, root: roots.join("\n") } };
}

function readRoot({ group = "", kind, name }: Fields, namespace: string, cluster: Cluster): string | Verdict {
  const no = (reason: string, message: string): Verdict => ({ isTrue: false, reason, message });
  if (group !== "" || kind !== "ConfigMap") return no("InvalidKind", `${String(kind)} is not supported: use ConfigMap`);
  const shown = `ConfigMap ${namespace}/${String(name)}`;
  const found = cluster.object("ConfigMap", namespace, String(name));
  const text = textOf(fieldsOf(found?.data)["ca.crt"]);
  if (text === undefined) return no("InvalidCACertificateRef", `${shown} was not found, or has no key ca.crt`);
  try {
    checkCertificates({ ca: text });
    return text;
  } catch (error) {
    return no("InvalidCACertificateRef", `${shown}: ${(error as Error).message}`);
  }
}

/** undefined: one of them is not understood, and could have been the one that protects. */
function readNames(written: unknown): string[] | undefined {
  const names = listOf(written).map((one) => {
    const { type, hostname, uri } = fieldsOf(one);
    if (type === "Hostname") return textOf(hostname);
    return type === "URI" && textOf(uri)?.includes("://") ? textOf(uri) : undefined;
  });
  return names.includes(undefined) ? undefined : (names as string[]);
}

/** Whether an older policy is for one of the same targets. */
export function isTlsPolicyConflicted(policy: KubernetesObject, cluster: Cluster): boolean {
  const namespace = policy.metadata.namespace ?? "";
  return targetedServices(policy).some(({ name, sectionName }) => {
    const [first] = inOrder(cluster.tlsPolicies(namespace, name).filter(names({ name, sectionName })));
    return first !== undefined && objectKey(first) !== objectKey(policy);
  });
}

/** The one for this port: one that names it counts before one for all ports. */
export function tlsPolicyOf(
  cluster: Cluster,
  namespace: string,
  name: string,
  port: string,
): KubernetesObject | undefined {
  const policies = cluster.tlsPolicies(namespace, name);
  const [own] = inOrder(policies.filter(names({ name, sectionName: port })));
  const [whole] = inOrder(policies.filter(names({ name, sectionName: undefined })));
  return own ?? whole;
}

function names(target: TargetedService): (policy: KubernetesObject) => boolean {
  return (policy) =>
    targetedServices(policy).some(
      ({ name, sectionName }) => name === target.name && sectionName === target.sectionName,
    );
}

function inOrder(policies: readonly KubernetesObject[]): KubernetesObject[] {
  const key = (policy: KubernetesObject): string => `${policy.metadata.creationTimestamp ?? ""} ${objectKey(policy)}`;
  return [...policies].sort((one, other) => (key(one) < key(other) ? -1 : 1));
}

/** What a Service's backend gets: its TLS, with the certificates as a text that `document` may read. */
export function tlsOfService(
  cluster: Cluster,
  document: ResourceDocument,
  service: { readonly namespace: string; readonly name: string; readonly port: string },
): { readonly backendTLS: Fields } | { readonly closed: string } | undefined {
  const policy = tlsPolicyOf(cluster, service.namespace, service.name, service.port);
  if (policy === undefined) return undefined;
  const { tls, accepted } = readTlsPolicy(policy, cluster);
  if (tls === undefined) return { closed: `BackendTLSPolicy ${objectKey(policy)}: ${accepted.message}` };
  const { root, ...rest } = tls;
  if (root === undefined) return { backendTLS: rest };
  const granted = document.confined?.grant(`BackendTLSPolicy ${objectKey(policy)}`, root) ?? "";
  return { backendTLS: { ...rest, root: granted } };
}
