/**
 * Identifies who owns state that one process keeps for several configurations, such as sessions, budgets, signatures,
 * and connections. Documents of different tenants may use equal names, so keys and signatures contain the owner. The
 * constructor is private: an owner comes from a document, or is the standalone configuration.
 */
import { createHash } from "node:crypto";

/** The name of a Kubernetes namespace. Other names, which only files can contain, are hashed. */
const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const HASH_DIGITS = 32;

export class Owner {
  /** Owns everything of the standalone configuration, so that replicas with other file names agree. */
  static readonly standalone: Owner = new Owner("", undefined, false);

  /** Keys begin with this text. It is empty for the standalone configuration, whose own keys never begin with `@`. */
  readonly prefix: string;
  /** True for documents in files. Earlier versions stored their data without an owner. */
  readonly isInFile: boolean;
  readonly #tenant: Owner | undefined;

  private constructor(prefix: string, tenant: Owner | undefined, isInFile: boolean) {
    this.prefix = prefix;
    this.isInFile = isInFile;
    this.#tenant = tenant;
  }

  /** Owns what the documents of one namespace have in common. */
  static ofNamespace(namespace: string, isInFile = false): Owner {
    return new Owner(`@${LABEL.test(namespace) ? namespace : `~${digest(namespace)}`}/`, undefined, isInFile);
  }

  static ofDocument({ namespace, kind, name }: DocumentIdentity, isInFile = false): Owner {
    const tenant = Owner.ofNamespace(namespace, isInFile);
    return new Owner(`${tenant.prefix}${digest(JSON.stringify([kind, name]))}/`, tenant, isInFile);
  }

  get isStandalone(): boolean {
    return this.prefix === "";
  }

  /** Returns the owner that the documents of one namespace have in common. */
  get tenant(): Owner {
    return this.#tenant ?? this;
  }
}

/**
 * Names state of the process together with its owner: resources, shared memory, counters, pools, and cached entries.
 * Only the functions below make one, so that a key without an owner does not compile.
 */
export type OwnedKey = string & { readonly [owned]: true };
declare const owned: unique symbol;

/** Returns the key of state that the documents of a namespace share if they use the same name. */
export function ownedKey({ tenant }: Owner, name: string): OwnedKey {
  return `${tenant.prefix}${name}` as OwnedKey;
}

/**
 * Resources that all owners share. Documents cannot choose their names, and what they contain for one owner has that
 * owner in its key.
 */
export const PROCESS_RESOURCES = {
  "budget books": "retry and count spending; each account has the key and the store of its owner",
  "mcp backends": "counts the backends for metrics",
  "mcp logins": "finds a login by its random ticket or state; each login has the vault of its owner",
  "minute counts": "counts what clients do; each key of a document contains its owner",
  "password checks": "queues checks per client, so that one thread is enough; it contains no results",
} as const;

export type ProcessResource = keyof typeof PROCESS_RESOURCES;

/** The keys of owners are empty or begin with `@`, so they differ from these. */
export function processKey(name: ProcessResource): OwnedKey {
  return `*/${name}` as OwnedKey;
}

export interface DocumentIdentity {
  readonly namespace: string;
  readonly kind: string;
  readonly name: string;
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, HASH_DIGITS);
}
