/**
 * Creates and parses the snapshot for a data plane: the documents of its Gateway, the objects that they use, and the
 * endpoints.
 */
import { createHash } from "node:crypto";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Steps } from "../../base/sliced-work.ts";
import { readMembersInSteps } from "../../json/parse-in-steps.ts";
import { readJson } from "../../json/read-json.ts";
import { fieldsOf, isObject, listOf } from "../text/value-shapes.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import { type Cluster, isKubernetesObject, type KubernetesObject, keyOf, objectKey } from "./cluster.ts";

const SNAPSHOT = peerInput("controller/snapshot");

export interface Snapshot {
  /** The format is `namespace/name`. */
  readonly gateway: string;
  /** The version covers the documents but not the endpoints. */
  readonly version: string;
  readonly documents: readonly KubernetesObject[];
  /** Maps `namespace/name:port` to addresses. */
  readonly endpoints: Readonly<Record<string, readonly string[]>>;
}

export function createSnapshot(
  gateway: string,
  documents: readonly KubernetesObject[],
  endpoints: Snapshot["endpoints"],
): Snapshot {
  const kept = documents.map(withoutBookkeeping);
  const version = createHash("sha256").update(JSON.stringify(kept)).digest("hex").slice(0, 32);
  return { gateway, version, documents: kept, endpoints };
}

export function parseSnapshot(text: string): Snapshot {
  return asSnapshot(readJson(SNAPSHOT, text));
}

export function* parseSnapshotInSteps(text: string): Steps<Snapshot> {
  return asSnapshot(yield* readMembersInSteps(SNAPSHOT, Buffer.from(text)));
}

function asSnapshot(value: unknown): Snapshot {
  const { gateway, version, documents, endpoints } = fieldsOf(value);
  if (typeof gateway !== "string" || typeof version !== "string" || !Array.isArray(documents) || !isObject(endpoints))
    throw new Error("not a snapshot");
  return {
    gateway,
    version,
    documents: documents.filter(isKubernetesObject),
    endpoints: Object.fromEntries(Object.entries(endpoints).map(([name, list]) => [name, listOf(list).map(String)])),
  };
}

/** Selectors of listeners and policies read the labels of these kinds. */
const LABELED = new Set(["Namespace", "Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "Service", "Backend"]);

/** Session tokens of these kinds depend on the UID. */
const IDENTIFIED = new Set(["HTTPRoute", "GRPCRoute"]);

function withoutBookkeeping({ apiVersion, kind, metadata, status: _, ...rest }: KubernetesObject): KubernetesObject {
  const { name, namespace, uid, generation, creationTimestamp, labels } = metadata;
  return {
    apiVersion,
    kind,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      ...(uid === undefined || !IDENTIFIED.has(kind) ? {} : { uid }),
      ...(generation === undefined ? {} : { generation }),
      ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
      ...(labels === undefined || !LABELED.has(kind) ? {} : { labels }),
    },
    ...rest,
  };
}

/** Records the objects that a document uses, for its snapshot. */
export function recordingCluster(cluster: Cluster): { readonly cluster: Cluster; used(): KubernetesObject[] } {
  const used = new Map<string, KubernetesObject>();
  const take = (kind: string, namespace: string, name: string): void => {
    const object = cluster.object(kind, namespace, name);
    if (object) used.set(`${kind} ${objectKey(object)}`, object);
  };
  return {
    used: () => [...used.values()],
    cluster: {
      ...cluster,
      service(namespace, name, port) {
        take("Service", namespace, name);
        return cluster.service(namespace, name, port);
      },
      object(kind, namespace, name) {
        take(kind, namespace, name);
        return cluster.object(kind, namespace, name);
      },
      tlsPolicies(namespace, service) {
        const found = cluster.tlsPolicies(namespace, service);
        for (const { metadata } of found) take("BackendTLSPolicy", namespace, metadata.name);
        return found;
      },
      secret(namespace, name) {
        take("Secret", namespace, name);
        return cluster.secret(namespace, name);
      },
      mayRefer(from, to) {
        const isPermitted = cluster.mayRefer(from, to);
        if (isPermitted && from.namespace !== to.namespace)
          for (const grant of cluster.objects("ReferenceGrant"))
            if (grant.metadata.namespace === to.namespace) take("ReferenceGrant", to.namespace, grant.metadata.name);
        return isPermitted;
      },
      namespaceFits(namespace, selector) {
        take("Namespace", "", namespace);
        return cluster.namespaceFits(namespace, selector);
      },
    },
  };
}

export function gatewayKey(gateway: KubernetesObject): string {
  return keyOf(gateway.metadata.namespace ?? "", gateway.metadata.name);
}

export interface Confinement {
  /** Returns a name that `readText` accepts instead of a file. */
  grant(reference: string, text: string): string;
  /** Throws if the name was not granted. */
  readText(name: string): string;
}

export interface ClusterDocument extends SourceDocument {
  readonly confined: Confinement;
}

export function clusterDocument(object: KubernetesObject): ClusterDocument {
  const granted = new Map<string, string>();
  return {
    file: "cluster",
    value: object,
    position: () => undefined,
    fromEnvironment: () => undefined,
    confined: {
      grant(reference, text) {
        const name = `secretRef:${reference}`;
        granted.set(name, text);
        return name;
      },
      readText(name) {
        const text = granted.get(name);
        if (text === undefined) throw new Error("a document of a cluster cannot read files");
        return text;
      },
    },
  };
}
