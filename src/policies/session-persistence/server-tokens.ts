/**
 * Maps the current servers of a route to opaque tokens and back. A token is a keyed hash of the route, the backend, and
 * the address, so all replicas compute the same tokens, and a forged token can only name a current server of the route.
 */
import { createHmac } from "node:crypto";
import type { PersistentRoute, PersistentServer, ServerGroup } from "../../core/session-persistence.ts";

/** 128 bits in base64url. */
export const TOKEN_CHARS = 22;

interface BackendTokens {
  readonly label: string;
  readonly group: ServerGroup | undefined;
  /** Undefined until the tokens are computed. */
  addresses: readonly string[] | undefined;
  addressByToken: ReadonlyMap<string, string>;
  tokenByAddress: ReadonlyMap<string, string>;
}

/** A backend that does not select between addresses has one token, for the whole backend. */
const WHOLE: readonly string[] = [""];

export class ServerTokens {
  readonly #backends: readonly BackendTokens[];
  readonly #route: string;
  readonly #key: string;

  constructor(route: PersistentRoute, key: string) {
    this.#route = route.name;
    this.#key = key;
    const labels = route.backends.map(({ backend }) => backend.routing?.servers?.name ?? "");
    this.#backends = route.backends.map(({ backend }, i) => {
      // A route can have the same servers twice, for example with different policies.
      const earlier = labels.slice(0, i).filter((label) => label === labels[i]).length;
      return {
        label: `${earlier} ${labels[i]}`,
        group: backend.routing?.servers,
        addresses: undefined,
        addressByToken: new Map(),
        tokenByAddress: new Map(),
      };
    });
  }

  find(token: string): PersistentServer | undefined {
    for (const [index, backend] of this.#backends.entries()) {
      this.#update(backend);
      const address = backend.addressByToken.get(token);
      if (address !== undefined) return { index, address: address === "" ? undefined : address };
    }
    return undefined;
  }

  /** Returns undefined if the route no longer has this server. */
  tokenOf(index: number, address: string | undefined): string | undefined {
    const backend = this.#backends[index];
    if (backend === undefined) return undefined;
    this.#update(backend);
    return backend.tokenByAddress.get(backend.group?.addresses === undefined ? "" : (address ?? ""));
  }

  #update(backend: BackendTokens): void {
    const addresses = backend.group?.addresses?.() ?? WHOLE;
    if (addresses === backend.addresses) return;
    const pairs = addresses.map((address) => [address, this.#hash(backend.label, address)] as const);
    backend.addresses = addresses;
    backend.tokenByAddress = new Map(pairs);
    backend.addressByToken = new Map(pairs.map(([address, token]) => [token, address]));
  }

  #hash(label: string, address: string): string {
    const text = JSON.stringify([this.#route, label, address]);
    return createHmac("sha256", this.#key).update(text).digest("base64url").slice(0, TOKEN_CHARS);
  }
}
