/**
 * Gives each owner its own part of the store that all configurations of a process share. Policies and backends receive
 * only this view, so they cannot read or write a key without its owner.
 */
import { Owner } from "../base/owner.ts";
import { type Store, storeNamespace } from "./store.ts";

/**
 * All kinds of entries. Those of a `namespace` are shared by the documents of a namespace with equal names, for example
 * budgets. Those of a `document` belong to one document, because they let a user in or contain data of one user.
 */
export const OWNED_ENTRIES = {
  "api-keys": "namespace",
  budgets: "namespace",
  "llm-cache": "namespace",
  "mcp-answers": "document",
  "mcp-definitions": "document",
  "mcp-login-relays": "document",
  "mcp-replicas": "document",
  "mcp-sessions": "document",
  "mcp-settings": "document",
  "mcp-tasks": "document",
  "mcp-vault": "document",
  signins: "document",
  "signins-finished": "document",
} as const satisfies Readonly<Record<string, "namespace" | "document">>;

export type OwnedEntries = keyof typeof OWNED_ENTRIES;

/** These entries belong to the process. Policies and backends cannot reach them. */
export type ProcessEntries = "history" | "keys";

export interface OwnedStore {
  readonly owner: Owner;
  /** Identifies the store behind all owners, for caches of a thread. */
  readonly root: WeakKey;
  at(entries: OwnedEntries): Store;
  /**
   * Returns the entries without an owner, which earlier versions wrote for documents in files. Undefined for other
   * owners: a standalone configuration still writes them, and clusters had no lasting store.
   */
  former(entries: OwnedEntries): Store | undefined;
}

export function ownedStore(store: Store, owner: Owner): OwnedStore {
  return {
    owner,
    root: store,
    at: (entries) => storeNamespace(store, entries, OWNED_ENTRIES[entries] === "document" ? owner : owner.tenant),
    former: (entries) => (owner.isInFile ? storeNamespace(store, entries, Owner.standalone) : undefined),
  };
}

/** Returns the entries of all owners, whose keys begin with the owner's prefix. For the operator's view only. */
export function entriesOfAllOwners(store: Store, entries: OwnedEntries): Store {
  return storeNamespace(store, entries, undefined);
}

export function processEntries(store: Store, entries: ProcessEntries): Store {
  return storeNamespace(store, entries, undefined);
}
