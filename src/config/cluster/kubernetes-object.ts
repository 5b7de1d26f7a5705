/**
 * An object of a cluster as its API server sends it. Nothing below `metadata` is checked: whoever reads it asks.
 */
import { type Fields, fieldsOf, textOf } from "../text/value-shapes.ts";

export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMetadata;
  readonly [field: string]: unknown;
}

export interface ObjectMetadata {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly [field: string]: unknown;
}

/** `namespace/name`; of what has no namespace, `/name`. */
export function objectKey(object: KubernetesObject): string {
  return keyOf(object.metadata.namespace ?? "", object.metadata.name);
}

export function keyOf(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

export function specOf(object: KubernetesObject | undefined): Fields {
  return fieldsOf(object?.spec);
}

/** The group of an apiVersion: empty for `v1`. */
export function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf("/");
  return slash < 0 ? "" : apiVersion.slice(0, slash);
}

/** Whether a value is an object of a cluster: it has the fields by which it is found. */
export function isKubernetesObject(value: unknown): value is KubernetesObject {
  const { apiVersion, kind, metadata } = fieldsOf(value);
  return (
    textOf(apiVersion) !== undefined && textOf(kind) !== undefined && textOf(fieldsOf(metadata).name) !== undefined
  );
}
