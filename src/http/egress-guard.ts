/**
 * Decides to which addresses a connection of the gateway may go. Everything that opens a socket requires a guard, which
 * checks the addresses each time it connects: a literal address before, and a name when it is resolved.
 */
import { isIP, type LookupFunction } from "node:net";
import { type AddressTest, publicAddresses } from "./egress-addresses.ts";
import { isRefusedAddress, refusesPrivateAddresses } from "./local-address.ts";

interface Rule {
  /**
   * `public` is the internet, and `private` is all else. `elsewhere` excludes this machine and, in a cluster, private
   * networks.
   */
  readonly addresses: "any" | "elsewhere" | "public" | "private";
  readonly unixSockets: boolean;
  refusal(host: string): string;
}

/** The addresses that each origin of an address may name. */
const RULES = {
  /** The configuration of the operator, and what the process finds on its machine. */
  configuration: { addresses: "any", unixSockets: true, refusal: (host) => `${host} is refused` },
  /** The endpoints of a Service, which the cluster's own controller writes. */
  services: { addresses: "any", unixSockets: false, refusal: (host) => `${host} is refused` },
  /** A document of a cluster, which a tenant writes. */
  document: {
    addresses: "elsewhere",
    unixSockets: false,
    refusal: (host) =>
      refusesPrivateAddresses()
        ? `${host} is a private address or one of the gateway's own machine, which documents of a cluster cannot use`
        : `${host} is an address of the gateway's own machine, which documents of a cluster cannot use`,
  },
  /** A client of a forward proxy or of a TCP route to any host. */
  client: {
    addresses: "public",
    unixSockets: false,
    refusal: (host) => `${host} has no address that the forward proxy may use`,
  },
  /** A remote server, for example an MCP server that names its authorization server. */
  server: {
    addresses: "public",
    unixSockets: false,
    refusal: (host) => `${host} has no public address, and a server may name only public ones`,
  },
  /** A server of the configuration whose name is to keep using private addresses. */
  privateServer: {
    addresses: "private",
    unixSockets: false,
    refusal: (host) => `${host} used private addresses before, and now has none`,
  },
} as const satisfies Record<string, Rule>;

export type EgressOrigin = keyof typeof RULES;

export class EgressGuard {
  /** Guards with the same key permit the same addresses, so they can share connections. */
  readonly key: string;
  readonly allowsUnixSockets: boolean;
  readonly #isClosed: boolean;
  readonly #permits: AddressTest | undefined;
  readonly #refusal: (host: string) => string;

  private constructor(
    key: string,
    permits: AddressTest | undefined,
    allowsUnixSockets: boolean,
    refusal: (host: string) => string,
    isClosed = false,
  ) {
    this.key = key;
    this.#isClosed = isClosed;
    this.allowsUnixSockets = allowsUnixSockets;
    this.#permits = permits;
    this.#refusal = refusal;
  }

  /** Addresses and networks in `allowed` are permitted in addition to the public ones. */
  static for(origin: EgressOrigin, allowed: readonly string[] = []): EgressGuard {
    const { addresses, unixSockets, refusal } = RULES[origin];
    const key = allowed.length === 0 ? origin : `${origin} ${allowed.join()}`;
    const tests = {
      any: () => undefined,
      elsewhere: () => (address: string, host: string) => !isRefusedAddress(address, host),
      public: () => publicAddresses(allowed),
      private: () => {
        const isPublic = publicAddresses(allowed);
        return (address: string, host: string) => !isPublic(address, host);
      },
    };
    return new EgressGuard(key, tests[addresses](), unixSockets, refusal);
  }

  /** Returns the guard of a dry run for what this guard permits. */
  closed(): EgressGuard {
    const refusal = (host: string): string => `a dry run does not connect to ${host}`;
    return new EgressGuard(`${this.key} (dry run)`, () => false, this.allowsUnixSockets, refusal, true);
  }

  /** Returns the guard for addresses of another origin, in the same environment. */
  to(origin: EgressOrigin, allowed: readonly string[] = []): EgressGuard {
    const guard = EgressGuard.for(origin, allowed);
    return this.#isClosed ? guard.closed() : guard;
  }

  /** Permits what both guards permit. */
  and(other: EgressGuard | undefined): EgressGuard {
    if (other === undefined || other.key === this.key) return this;
    if (this.isOpen && this.allowsUnixSockets) return other;
    return new EgressGuard(
      `${this.key} and ${other.key}`,
      this.isOpen && other.isOpen
        ? undefined
        : (address, host) => this.permits(address, host) && other.permits(address, host),
      this.allowsUnixSockets && other.allowsUnixSockets,
      this.#refusal,
      this.#isClosed || other.#isClosed,
    );
  }

  /** `host` is the name that resolved to the address, or the address itself. A name is permitted here. */
  permits(address: string, host: string): boolean {
    return this.#permits === undefined || this.#permits(address, host);
  }

  refusal(host: string): Error {
    return Object.assign(new Error(this.#refusal(host)), { code: "EACCES" });
  }

  /** Returns the reason if the target must not be connected to. Names are checked by `lookup` instead. */
  fault({ host, socketPath }: { readonly host: string; readonly socketPath?: string | undefined }): Error | undefined {
    if (this.#isClosed) return this.refusal(socketPath ?? host);
    if (socketPath !== undefined) return this.allowsUnixSockets ? undefined : this.refusal(socketPath);
    return isIP(host) === 0 || this.permits(host, host) ? undefined : this.refusal(host);
  }

  /** Wraps a lookup to omit the addresses that are not permitted. The lookup of a name without others fails. */
  lookup(resolve: LookupFunction): LookupFunction {
    if (this.isOpen) return resolve;
    return (name, options, callback) => {
      resolve(name, { ...options, all: true }, (error, found) => {
        const all = Array.isArray(found) ? found : [];
        const fitting = all.filter(({ address }) => this.permits(address, name));
        const [first] = fitting;
        const failed = error ?? (first ? null : this.refusal(name));
        if (options.all) callback(failed, fitting);
        else callback(failed, first?.address ?? "", first?.family ?? 0);
      });
    };
  }

  /** Definitions of resources contain the guard. */
  toJSON(): string {
    return this.key;
  }

  /** True if all addresses are permitted. */
  get isOpen(): boolean {
    return this.#permits === undefined;
  }
}
