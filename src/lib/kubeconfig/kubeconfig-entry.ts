/**
 * One entry of a kubeconfig (a context, a cluster, a user) and its values: text, files beside it, and PEM that stands
 * in it or in a file.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { TlsOptions } from "../http/http-client.ts";
import { KubeconfigError } from "./kubeconfig-error.ts";

export type Fields = Readonly<Record<string, unknown>>;

/** An entry of a kubeconfig. */
export interface Entry {
  /** For messages: `user admin`. */
  readonly title: string;
  /** The folder of its file: paths in it are relative to that. */
  readonly folder: string;
  readonly fields: Fields;
}

/** What a user shows to the cluster. */
export interface Shown {
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsOptions;
}

/** `<name>-data` is base64 of the PEM text and wins; `<name>` is a file. */
export function pem(owner: Entry, name: string): string | undefined {
  const data = text(owner.fields[`${name}-data`]);
  const file = text(owner.fields[name]);
  if (data === undefined && file === undefined) return undefined;
  const value = data === undefined ? readBeside(owner, file ?? "") : Buffer.from(data, "base64").toString();
  if (value.includes("-----BEGIN ")) return value;
  throw new KubeconfigError(
    `${data === undefined ? name : `${name}-data`} of ${owner.title} in the kubeconfig is not in PEM form`,
  );
}

export function readBeside(owner: Entry, file: string): string {
  try {
    return readFileSync(resolve(owner.folder, file), "utf8");
  } catch (error) {
    throw new KubeconfigError(`cannot read ${file} of ${owner.title} in the kubeconfig: ${(error as Error).message}`);
  }
}

export function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
