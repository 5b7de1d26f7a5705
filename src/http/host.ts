/**
 * Reads host names. Every comparison of hosts in the gateway uses the canonical form: lowercase, without port, brackets,
 * and trailing dot, and IPv6 addresses as in RFC 5952. Names are not decoded, so a name in punycode stays as received.
 */
import { isIPv6, SocketAddress } from "node:net";
import { domainToASCII } from "node:url";

declare const CANONICAL: unique symbol;

/** Only this file makes values of this type, so that a host is never compared as received. */
export type CanonicalHost = string & { readonly [CANONICAL]: true };

/** A host with an optional port, as in the Host header (RFC 9110 section 7.2). */
interface Authority {
  readonly name: CanonicalHost;
  readonly port: number | undefined;
  /** The name in canonical form, with brackets if it is an IPv6 address, and with the port if one was given. */
  readonly text: string;
}

/** Underscores are not valid in host names but occur in names of containers. Zones of IPv6 addresses are rejected. */
const AUTHORITY = /^(?:([A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*)\.?|\[([0-9A-Fa-f:.]+)\])(?::([0-9]{1,5}))?$/;
const PLAIN_NAME = /^[a-z0-9_~-]+(?:\.[a-z0-9_~-]+)*$/;

/** Most requests repeat one of few authorities. Clients choose them, so the table is small and is cleared when full. */
const known = new Map<string, Authority>();
const MAX_KNOWN_AUTHORITIES = 256;
const MAX_KNOWN_CHARS = 100;

/** Returns undefined if the text is not a host with an optional port. */
export function parseAuthority(text: string): Authority | undefined {
  const found = known.get(text);
  if (found !== undefined) return found;
  if (text.length > MAX_KNOWN_CHARS) return readAuthority(text);
  // The text may be a slice of a head, which would stay in memory.
  const copy = Buffer.from(text).toString();
  const read = readAuthority(copy);
  if (read === undefined) return undefined;
  if (known.size >= MAX_KNOWN_AUTHORITIES) known.clear();
  known.set(copy, read);
  return read;
}

function readAuthority(text: string): Authority | undefined {
  if (PLAIN_NAME.test(text)) return { name: text as CanonicalHost, port: undefined, text };
  const [matched, name, address, digits] = AUTHORITY.exec(text) ?? [];
  if (matched === undefined) return undefined;
  const host = address === undefined ? (name ?? "").toLowerCase() : canonicalIPv6(address);
  const port = digits === undefined ? undefined : Number(digits);
  if (host === undefined || (port !== undefined && port > 65_535)) return undefined;
  const shown = address === undefined ? host : `[${host}]`;
  return { name: host as CanonicalHost, port, text: port === undefined ? shown : `${shown}:${port}` };
}

function canonicalIPv6(address: string): string | undefined {
  return isIPv6(address) ? new SocketAddress({ address, family: "ipv6" }).address : undefined;
}

export function isSameAuthority(one: string, other: string): boolean {
  const named = parseAuthority(one)?.text;
  return named === undefined ? one === other : named === parseAuthority(other)?.text;
}

const NO_HOST = "" as CanonicalHost;

/** Returns the host of an authority, or an empty name, which equals no host, if it is invalid. */
export function hostOf(authority: string): CanonicalHost {
  return parseAuthority(authority)?.name ?? NO_HOST;
}

/** Returns the authority without its port, for example `[::1]` for `[::1]:80`. Invalid text is returned unchanged. */
export function withoutPort(authority: string): string {
  const parsed = parseAuthority(authority);
  return parsed?.port === undefined ? authority : parsed.text.slice(0, -`:${parsed.port}`.length);
}

/** Returns the authority of an `http` or `https` origin. A default port is absent. */
export function authorityOfOrigin(origin: string): Authority | undefined {
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  return url?.protocol === "http:" || url?.protocol === "https:" ? parseAuthority(url.host) : undefined;
}

/** A scheme and an authority without a user name, as browsers send it (RFC 6454 section 6.2). */
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/[^\s/\\?#@]+$/i;

/**
 * Returns an origin in the one spelling in which origins are compared, without a default port. Returns undefined if the
 * text is not an origin, for example `null`.
 */
export function canonicalOrigin(origin: string): string | undefined {
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  if (url === undefined || url.host === "" || !ORIGIN.test(origin)) return undefined;
  return `${url.protocol}//${parseAuthority(url.host)?.text ?? url.host}`;
}

/**
 * Returns the host of a URL for sockets and certificates: without brackets. A final dot stays, because resolvers do not
 * complete such a name.
 */
export function hostToConnect({ hostname }: URL): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

/** Returns whether a page of this origin was loaded from this authority. The scheme is not compared. */
export function isOwnOrigin(origin: string, authority: string): boolean {
  const own = authorityOfOrigin(origin);
  const asked = parseAuthority(authority);
  if (own === undefined || asked === undefined || own.name !== asked.name) return false;
  const standard = /^https:/i.test(origin) ? 443 : 80;
  return (own.port ?? standard) === (asked.port ?? standard);
}

/** A host of the configuration. `*.example.com` matches names below the domain, and `*` matches all. */
export function canonicalPattern(pattern: string): CanonicalHost {
  if (pattern === "*") return pattern as CanonicalHost;
  const isWildcard = pattern.startsWith("*.");
  const name = isWildcard ? pattern.slice(2) : pattern;
  // An IPv6 address may be written without brackets, and a name with letters that are not ASCII.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches all of ASCII
  const ascii = isIPv6(name) ? `[${name}]` : /^[\x00-\x7f]*$/.test(name) ? name : domainToASCII(name);
  const host = parseAuthority(ascii)?.name ?? name.toLowerCase();
  return (isWildcard ? `*.${host}` : host) as CanonicalHost;
}

export function matchesHost(pattern: CanonicalHost, host: CanonicalHost): boolean {
  if (pattern === "*") return true;
  if (pattern.startsWith("*.")) return host.length > pattern.length - 1 && host.endsWith(pattern.slice(1));
  return host === pattern && host !== "";
}

export interface HostTable<Value> {
  find(host: CanonicalHost): Value | undefined;
}

/**
 * Selects an entry by host. An exact name has precedence over the longest matching wildcard, which matches one or more
 * labels. The first entry with a name takes precedence.
 */
export function createHostTable<Value>(
  entries: readonly (readonly [pattern: string, value: Value])[],
): HostTable<Value> {
  const exact = new Map<string, Value>();
  /** The keys are the names without the star, for example `.example.com`. */
  const wildcards = new Map<string, Value>();
  for (const [pattern, value] of entries) {
    const name = canonicalPattern(pattern);
    const isWildcard = name.startsWith("*.");
    const table = isWildcard ? wildcards : exact;
    const key = isWildcard ? name.slice(1) : name;
    if (!table.has(key)) table.set(key, value);
  }
  return {
    find(host) {
      const found = exact.get(host);
      if (found !== undefined || wildcards.size === 0) return found;
      for (let dot = host.indexOf("."); dot >= 0; dot = host.indexOf(".", dot + 1)) {
        const fitting = wildcards.get(host.slice(dot));
        if (fitting !== undefined && dot > 0) return fitting;
      }
      return undefined;
    },
  };
}

/** Returns the server name of a TLS client, which has no port (RFC 6066 section 3). */
export function canonicalServerName(name: string): CanonicalHost {
  const parsed = parseAuthority(name);
  return parsed?.port === undefined ? (parsed?.name ?? NO_HOST) : NO_HOST;
}

const MAPPED_PREFIX = "::ffff:";

/**
 * Returns the canonical form of an IP address, without a zone. An IPv4 peer of a dual-stack socket appears as
 * `::ffff:1.2.3.4`.
 */
export function canonicalAddress(address: string): CanonicalHost {
  if (!address.includes(":")) return address as CanonicalHost;
  const [bare = ""] = address.split("%", 1);
  const canonical = canonicalIPv6(bare) ?? bare;
  const isMapped = canonical.startsWith(MAPPED_PREFIX) && canonical.includes(".");
  return (isMapped ? canonical.slice(MAPPED_PREFIX.length) : canonical) as CanonicalHost;
}

/** Returns the network of a client. An IPv6 client usually has a whole /64 network. */
export function clientNetwork(address: string): string {
  const canonical = canonicalAddress(address);
  if (!canonical.includes(":")) return canonical;
  const [head = "", tail = ""] = canonical.split("::");
  const before = head === "" ? [] : head.split(":");
  const after = tail === "" ? [] : tail.split(":");
  const zeros = Array<string>(Math.max(0, 8 - before.length - after.length)).fill("0");
  return `${[...before, ...zeros, ...after].slice(0, 4).join(":")}::/64`;
}

const LOOPBACK_IPV4 = /^127(?:\.\d{1,3}){3}$/;

/** Returns whether the name is `localhost` or a loopback address. */
export function isLoopbackHost(host: CanonicalHost): boolean {
  return host === "localhost" || host === "::1" || LOOPBACK_IPV4.test(host);
}
