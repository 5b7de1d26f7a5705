/**
 * Prepares values of a cluster document for validation. It resolves each `secretRef` in a field that allows one, and
 * rejects values that access the local machine and addresses that the author may not reach.
 */
import type { z } from "zod";
import { getAddressUse, getLocalUse, isSecretSchema } from "../../core/schema.ts";
import { below, unwrap } from "../schema/schema-walk.ts";
import type { Path } from "../text/value-path.ts";
import { type Fields, fieldsOf, isObject, textOf } from "../text/value-shapes.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import type { Cluster, Referrer } from "./cluster.ts";
import { addressFault } from "./confined-addresses.ts";

export interface Confined {
  readonly value: unknown;
  readonly faults: readonly { readonly path: Path; readonly message: string }[];
}

export interface ConfinedContext {
  readonly cluster: Cluster;
  readonly document: SourceDocument;
  /** Secrets are read from this namespace unless the reference names another one, which needs a grant. */
  readonly referrer: Referrer;
}

export function confinedValues(schema: z.ZodType, value: unknown, path: Path, context: ConfinedContext): Confined {
  const faults: { path: Path; message: string }[] = [];

  function walk(schemas: readonly z.ZodType[], inner: unknown, at: Path, around: Fields = {}): unknown {
    const marked = [...schemas, ...schemas.flatMap(unwrap)];
    const local = marked.map(getLocalUse).find((use) => use !== undefined);
    if (isObject(inner) && Object.keys(inner).length === 1 && isObject(inner.secretRef)) {
      const isSecret = marked.some(isSecretSchema);
      if (isSecret || local?.isReadable) return referred(inner.secretRef, at, isSecret);
    }
    if (local && inner !== undefined && inner !== null && (local.isLocal?.(inner) ?? true)) {
      const hint = local.isReadable ? ": use secretRef" : "";
      faults.push({ path: at, message: `a document of a cluster cannot use ${local.what}${hint}` });
      return inner;
    }
    const address = marked.map(getAddressUse).find((use) => use !== undefined);
    if (
      address &&
      typeof inner === "string" &&
      (address.unless === undefined || around[address.unless] === undefined)
    ) {
      const message = addressFault(inner, context);
      if (message !== undefined) faults.push({ path: at, message });
      return inner;
    }
    const holders = schemas.flatMap(unwrap);
    if (Array.isArray(inner)) return inner.map((element, i) => walk(below(holders, i), element, [...at, i]));
    if (!isObject(inner)) return inner;
    return Object.fromEntries(
      Object.entries(inner).map(([key, field]) => [key, walk(below(holders, key), field, [...at, key], inner)]),
    );
  }

  function referred(written: Readonly<Record<string, unknown>>, at: Path, isSecret: boolean): unknown {
    const found = secretText(fieldsOf(written), context);
    if ("problem" in found) {
      faults.push({ path: [...at, "secretRef"], message: found.problem });
      return "";
    }
    // A value created from a file often ends with an unintended line break.
    if (isSecret) return found.text.replace(/\r?\n$/, "");
    return context.document.confined?.grant(found.reference, found.text) ?? "";
  }

  return { value: walk([schema], value, path), faults };
}

type Found = { readonly text: string; readonly reference: string } | { readonly problem: string };

function secretText(written: Readonly<Record<string, unknown>>, { cluster, referrer }: ConfinedContext): Found {
  const name = textOf(written.name);
  const key = textOf(written.key);
  const namespace = textOf(written.namespace) ?? referrer.namespace;
  if (name === undefined || key === undefined) return { problem: "`name` and `key` are needed" };
  const reference = `${namespace}/${name}`;
  // Checks the grant first, so that the message does not reveal whether a Secret in another namespace exists.
  if (!cluster.mayRefer(referrer, { group: "", kind: "Secret", namespace, name }))
    return { problem: `Secret ${reference} is in another namespace, whose ReferenceGrants do not allow this` };
  const secret = cluster.secret(namespace, name);
  if (secret === undefined) return { problem: `Secret ${reference} was not found` };
  const text = secret.get(key);
  if (text === undefined) return { problem: `Secret ${reference} has no key ${key}` };
  return text === ""
    ? { problem: `key ${key} of Secret ${reference} is empty` }
    : { text, reference: `${reference}/${key}` };
}
