/**
 * An object of a cluster as a document. Whoever may write it need not be trusted with this machine: it reads no file,
 * starts no process and reaches no socket here. What a `secretRef` names is handed over as a text that only this
 * document can read.
 */
import type { SourceDocument } from "../text/yaml-source.ts";
import type { KubernetesObject } from "./kubernetes-object.ts";

/** What a document of a cluster may read: the texts that were granted to it. */
export interface Confinement {
  /** The name under which the text can be read instead of a file. */
  grant(reference: string, text: string): string;
  /** Throws for everything that was not granted. */
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
