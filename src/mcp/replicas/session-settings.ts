/**
 * Stores the log level and the subscriptions of a session, so that a process that resumes the session can restore them.
 * The record is encrypted, and the number of subscriptions is limited.
 */
import { Sealer } from "../../store/sealer.ts";
import type { Store } from "../../store/store.ts";
import { asClientRequest, type ClientRequest } from "../protocol/json-rpc.ts";
import type { ReplicaServices } from "./replica-bus.ts";

/** Further subscriptions are not stored. */
const MAX_KEPT_SUBSCRIPTIONS = 500;
const MAX_KEPT_URI_CHARS = 1_000;
const MAX_LEVEL_CHARS = 100;
/** Other replicas may change the record at the same time, so writes are retried. */
const TRIES = 5;

const SUBSCRIBE = "resources/subscribe";
const UNSUBSCRIBE = "resources/unsubscribe";
const SET_LEVEL = "logging/setLevel";
const METHODS: ReadonlySet<string> = new Set([SUBSCRIBE, UNSUBSCRIBE, SET_LEVEL]);

interface Settings {
  readonly level?: string;
  readonly uris: readonly string[];
}

export function isSetting(method: string): boolean {
  return METHODS.has(method);
}

export class SessionSettings {
  readonly #env: ReplicaServices;
  readonly #store: Store;

  constructor(env: ReplicaServices) {
    this.#env = env;
    this.#store = env.store.at("mcp-settings");
  }

  /** Stores the setting of a successful request. Never rejects. */
  async add(name: string, request: ClientRequest, expiresAtMs: number): Promise<void> {
    try {
      for (let tries = 0; tries < TRIES; tries++) {
        const before = await this.#store.get(name);
        const next = changed(this.#read(name, before), request);
        if (next === undefined) return;
        if (await this.#store.replace(name, before, this.#sealer().seal(name, next), { expiresAtMs })) return;
      }
      this.#env.logger.warn("MCP session settings could not be stored", { reason: "concurrent changes" });
    } catch (error) {
      this.#env.logger.warn("MCP session settings could not be stored", { reason: (error as Error).message });
    }
  }

  /** Resolves with the requests that restore the settings. Never rejects. */
  async of(name: string): Promise<readonly ClientRequest[]> {
    try {
      const { level, uris } = this.#read(name, await this.#store.get(name));
      return [
        ...(level === undefined ? [] : [asClientRequest(SET_LEVEL, JSON.stringify({ level }))]),
        ...uris.map((uri) => asClientRequest(SUBSCRIBE, JSON.stringify({ uri }))),
      ];
    } catch (error) {
      this.#env.logger.warn("MCP session settings could not be read", { reason: (error as Error).message });
      return [];
    }
  }

  touch(name: string, expiresAtMs: number): void {
    this.#store
      .get(name)
      .then((text) => (text === undefined ? undefined : this.#store.replace(name, text, text, { expiresAtMs })))
      .catch(() => undefined);
  }

  end(name: string): void {
    this.#store.delete(name).catch(() => undefined);
  }

  /** A record that cannot be decrypted counts as empty. */
  #read(name: string, sealed: string | undefined): Settings {
    return (sealed === undefined ? undefined : this.#sealer().open<Settings>(name, sealed)) ?? { uris: [] };
  }

  #sealer(): Sealer {
    return new Sealer(this.#env.key.sign("mcp settings"), "mcp settings");
  }
}

/** Returns undefined if the setting is invalid or exceeds a limit. */
function changed(settings: Settings, { method, params }: ClientRequest): Settings | undefined {
  if (method === SET_LEVEL) {
    const { level } = params;
    return typeof level === "string" && level.length <= MAX_LEVEL_CHARS ? { ...settings, level } : undefined;
  }
  const { uri } = params;
  if (typeof uri !== "string") return undefined;
  const others = settings.uris.filter((one) => one !== uri);
  if (method === UNSUBSCRIBE) return { ...settings, uris: others };
  if (uri.length > MAX_KEPT_URI_CHARS || others.length >= MAX_KEPT_SUBSCRIPTIONS) return undefined;
  return { ...settings, uris: [...others, uri] };
}
