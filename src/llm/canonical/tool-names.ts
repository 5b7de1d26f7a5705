/**
 * Maps the tools of a Responses API request to the flat names that other providers accept, and maps calls of these
 * tools back.
 */
import { createHash } from "node:crypto";

/** Some providers limit tool names to 64 characters or reject the characters in `UNSAFE`. */
const FLAT_NAME_CHARS = 64;
const UNSAFE = /[^A-Za-z0-9_-]/g;
const HASH_CHARS = 12;

export interface ClientToolName {
  readonly name: string;
  readonly namespace?: string;
}

export class ToolNames {
  /** Contains the flat names of custom tools, whose input is a string instead of an object. */
  readonly #custom = new Set<string>();
  readonly #originals = new Map<string, ClientToolName>();

  /** Keeps the name of a tool without a namespace. All of them must be reserved before the first call of `flatten`. */
  reserve(name: string): void {
    this.#originals.set(name, { name });
  }

  /** A hash is appended to a name that is too long, has unsafe characters, or belongs to another tool. */
  flatten(namespace: string, name: string): string {
    const plain = `${namespace}__${name}`;
    const isUsable =
      plain.length <= FLAT_NAME_CHARS && plain.search(UNSAFE) === -1 && this.#isFree(plain, namespace, name);
    const flat = isUsable ? plain : hashedName(plain, namespace, name);
    this.#originals.set(flat, { name, namespace });
    return flat;
  }

  original(flat: string): ClientToolName {
    return this.#originals.get(flat) ?? { name: flat };
  }

  addCustom(flat: string): void {
    this.#custom.add(flat);
  }

  isCustom(flat: string): boolean {
    return this.#custom.has(flat);
  }

  #isFree(flat: string, namespace: string, name: string): boolean {
    const owner = this.#originals.get(flat);
    return owner === undefined || (owner.namespace === namespace && owner.name === name);
  }
}

function hashedName(plain: string, namespace: string, name: string): string {
  const hash = createHash("sha256")
    .update(JSON.stringify([namespace, name]))
    .digest("hex")
    .slice(0, HASH_CHARS);
  return `${plain.replace(UNSAFE, "_").slice(0, FLAT_NAME_CHARS - HASH_CHARS - 1)}_${hash}`;
}
