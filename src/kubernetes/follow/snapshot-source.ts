/**
 * The cluster as a source of configuration: the latest snapshot as documents, and the endpoints, which change inside of
 * backends without a new configuration.
 */
import { createCluster } from "../../config/cluster/cluster.ts";
import { clusterDocument } from "../../config/cluster/cluster-document.ts";
import { keyOf } from "../../config/cluster/kubernetes-object.ts";
import type { Snapshot } from "../../config/cluster/snapshot.ts";
import type { ClusterInput } from "../../config/prepare.ts";
import type { EndpointDirectory } from "../../core/policy.ts";

export interface Applied {
  readonly isServed: boolean;
  readonly problems: readonly string[];
  /** Documents that could not be compiled, as they are in the snapshot. */
  readonly failures: readonly { readonly document: unknown; readonly message: string }[];
}

/** What the composition root sees. */
export interface ClusterSource {
  readonly endpoints: EndpointDirectory;
  /** The documents to load now, and the version by which the outcome is told. */
  current(): { readonly input: ClusterInput; readonly version: string } | undefined;
  /** Called for each new version of the documents. */
  onChange(callback: () => void): void;
  applied(version: string, outcome: Applied): void;
}

export interface SnapshotSource extends ClusterSource {
  take(snapshot: Snapshot): void;
  snapshot(): Snapshot | undefined;
}

/** `told` hears what became of a version. */
export function createSnapshotSource(told: (snapshot: Snapshot, outcome: Applied) => void): SnapshotSource {
  const lists = new Map<string, readonly string[]>();
  let latest: Snapshot | undefined;
  let current: { input: ClusterInput; version: string } | undefined;
  let changed = (): void => undefined;

  function takeEndpoints({ endpoints }: Snapshot): void {
    for (const [name, addresses] of Object.entries(endpoints)) {
      const before = lists.get(name);
      // The same list stays the same object: its connections stay too.
      if (before === undefined || before.join() !== addresses.join()) lists.set(name, addresses);
    }
    for (const name of lists.keys()) if (!Object.hasOwn(endpoints, name)) lists.delete(name);
  }

  return {
    endpoints: { addresses: (service) => lists.get(service) ?? [] },
    current: () => current,
    onChange(callback) {
      changed = callback;
    },
    applied(version, outcome) {
      if (latest?.version === version) told(latest, outcome);
    },
    snapshot: () => latest,
    take(snapshot) {
      takeEndpoints(snapshot);
      const isNew = latest?.version !== snapshot.version;
      latest = snapshot;
      if (!isNew) return;
      const documents = snapshot.documents.map(clusterDocument);
      current = { input: { documents, cluster: createCluster(snapshot.documents) }, version: snapshot.version };
      changed();
    },
  };
}

/** `namespace/name` of a document, for the controller. */
export function documentKey(document: unknown): string {
  const { metadata } = (document ?? {}) as { metadata?: { namespace?: string; name?: string } };
  return keyOf(metadata?.namespace ?? "", metadata?.name ?? "");
}
