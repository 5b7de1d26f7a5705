/**
 * Stores what servers responded to `initialize` and to list requests, so that a new session does not wait for its
 * servers to start. An entry belongs to one principal and one server. It is used only for the same definition of the
 * server and the same `initialize` parameters, because lists can depend on both.
 */
import { createHash } from "node:crypto";
import { Sealer } from "../../store/sealer.ts";
import type { Store } from "../../store/store.ts";
import type { ReplicaServices } from "../replicas/replica-bus.ts";
import type { Target } from "./target.ts";

const KEPT_MS = 7 * 24 * 3_600_000;
const REFRESHED_AFTER_MS = 24 * 3_600_000;
/** Clients with different names or capabilities have separate variants. */
const MAX_VARIANTS = 4;
/** All variants of one principal and server. */
export const MAX_DEFINITION_CHARS = 256 * 1024;

/** The results are JSON as the server sent them, before any rule of the configuration applies. */
export interface Definition {
  readonly initialized: string;
  readonly lists: Readonly<Record<string, string>>;
}

interface Variant extends Definition {
  readonly key: string;
  readonly atMs: number;
}

/** The variant that was used last comes first. */
interface Kept {
  readonly variants: readonly Variant[];
}

/** The definition of one server as one client of one principal gets it. */
export interface KnownDefinition {
  /** Resolves with undefined if nothing is stored or the store is unavailable. */
  read(): Promise<Definition | undefined>;
  /** Replaces the stored definition if it differs or is old. */
  save(definition: Definition): void;
}

export interface KnownDefinitionsOptions extends ReplicaServices {
  readonly backend: string;
}

export class KnownDefinitions {
  readonly #env: KnownDefinitionsOptions;
  readonly #store: Store;

  constructor(env: KnownDefinitionsOptions) {
    this.#env = env;
    this.#store = env.store.at("mcp-definitions");
  }

  /** `initializeParams` is JSON. */
  of(target: Target, principal: string | undefined, initializeParams: string): KnownDefinition {
    const place = digest(this.#env.backend, target.name, principal ?? null);
    const key = digest(target.definition, initializeParams);
    let saving = Promise.resolve();
    return {
      read: () => this.#attempt(async () => (await this.#read(place)).find((one) => one.key === key)),
      save: (definition) => {
        saving = saving.then(() => this.#attempt(() => this.#save(place, { ...definition, key, atMs: this.#nowMs })));
      },
    };
  }

  get #nowMs(): number {
    return this.#env.clock.now();
  }

  async #read(place: string): Promise<readonly Variant[]> {
    const sealed = await this.#store.get(place);
    return (sealed === undefined ? undefined : this.#sealer().open<Kept>(place, sealed))?.variants ?? [];
  }

  async #save(place: string, variant: Variant): Promise<void> {
    const before = await this.#read(place);
    const known = before.find(({ key }) => key === variant.key);
    if (known !== undefined && variant.atMs - known.atMs < REFRESHED_AFTER_MS && isSame(known, variant)) return;
    const variants = bounded([variant, ...before.filter((one) => one !== known)]);
    const sealed = this.#sealer().seal(place, { variants } satisfies Kept);
    await this.#store.set(place, sealed, { expiresAtMs: variant.atMs + KEPT_MS });
  }

  async #attempt<Result>(work: () => Promise<Result>): Promise<Result | undefined> {
    try {
      return await work();
    } catch (error) {
      this.#env.logger.debug("MCP server definitions not available", { reason: (error as Error).message });
      return undefined;
    }
  }

  #sealer(): Sealer {
    return new Sealer(this.#env.key.sign("mcp definitions"), "mcp definitions");
  }
}

function isSame(one: Definition, other: Definition): boolean {
  return one.initialized === other.initialized && JSON.stringify(one.lists) === JSON.stringify(other.lists);
}

function bounded(variants: readonly Variant[]): readonly Variant[] {
  const kept: Variant[] = [];
  let chars = 0;
  for (const variant of variants.slice(0, MAX_VARIANTS)) {
    chars += JSON.stringify(variant).length;
    if (chars > MAX_DEFINITION_CHARS) break;
    kept.push(variant);
  }
  return kept;
}

function digest(...values: readonly (string | null)[]): string {
  return createHash("sha256").update(JSON.stringify(values)).digest("base64url");
}
