/**
 * What is wrong with one document: each mistake with its place, and the document's own name in front, because the
 * lines of several documents are read together.
 */

import { ConfigError } from "../../core/config-error.ts";
import { type Path, pathText } from "../text/value-path.ts";
import { isObject, textOf } from "../text/value-shapes.ts";
import { DEFAULT_NAMESPACE, type ObjectReference, type ResourceDocument } from "./documents.ts";

export interface ProblemList {
  add(path: Path, message: string): ConfigError;
  readonly all: readonly ConfigError[];
}

export function createProblemList(document: ResourceDocument): ProblemList {
  const all: ConfigError[] = [];
  const { kind } = identityOf(document);
  return {
    add(path, message) {
      const error = new ConfigError(
        document.position(path),
        `${kind} ${fullName(document)}: ${pathText(path)}`,
        message,
      );
      all.push(error);
      return error;
    },
    all,
  };
}

export interface Identity {
  readonly apiVersion: string;
  readonly kind: string;
  readonly namespace: string;
  /** Empty if there is none. */
  readonly name: string;
}

export function identityOf(document: ResourceDocument): Identity {
  const value = isObject(document.value) ? document.value : {};
  const metadata = isObject(value.metadata) ? value.metadata : {};
  return {
    apiVersion: textOf(value.apiVersion) ?? "",
    kind: textOf(value.kind) ?? "",
    namespace: textOf(metadata.namespace) ?? DEFAULT_NAMESPACE,
    name: textOf(metadata.name) ?? "",
  };
}

export function fullName(document: ResourceDocument): string {
  const { namespace, name } = identityOf(document);
  return `${namespace}/${name === "" ? "(no name)" : name}`;
}

export function referenceText({ kind, namespace, name }: ObjectReference): string {
  return `${kind} ${namespace}/${name}`;
}
