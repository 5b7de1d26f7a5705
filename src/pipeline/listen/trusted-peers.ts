/**
 * Implements `config.trustedProxies`, which lists the peers whose forwarding headers are trusted, and derives the
 * client's address from `x-forwarded-for`.
 */
import { BlockList, isIP, isIPv6 } from "node:net";
import { canonicalAddress } from "../../http/host.ts";

export type IsTrustedPeer = (address: string) => boolean;

const MAX_PROXIES = 32;
/** Some proxies add the port, as in `192.0.2.1:4711` or `[2001:db8::1]:4711`. */
const WITH_PORT = /^(?:\[([^\]]+)\](?::\d{1,5})?|([\d.]+):\d{1,5})$/;

export function trustedPeers(ranges: readonly string[]): IsTrustedPeer {
  if (ranges.length === 0) return () => false;
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", bits] = range.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return (peer) => {
    const address = canonicalAddress(peer);
    return isIP(address) !== 0 && list.check(address, isIPv6(address) ? "ipv6" : "ipv4");
  };
}

/**
 * Returns the last address in `x-forwarded-for` that is not a trusted proxy, or the first address if all are trusted.
 * Returns undefined if the header is absent, or if an entry is malformed or the limit is reached first.
 */
export function forwardedClient(forwardedFor: string | undefined, isTrustedPeer: IsTrustedPeer): string | undefined {
  if (forwardedFor === undefined) return undefined;
  let end = forwardedFor.length;
  for (let i = 0; i < MAX_PROXIES; i++) {
    const comma = forwardedFor.lastIndexOf(",", end - 1);
    const address = parseForwardedAddress(forwardedFor.slice(comma + 1, end).trim());
    if (address === undefined) return undefined;
    if (comma < 0 || !isTrustedPeer(address)) return address;
    // A leading comma is malformed.
    if (comma === 0) return undefined;
    end = comma;
  }
  return undefined;
}

/** Returns the address in canonical form, so that one client has one address. */
function parseForwardedAddress(entry: string): string | undefined {
  const found = isIP(entry) === 0 ? WITH_PORT.exec(entry) : null;
  const address = found ? (found[1] ?? found[2] ?? "") : entry;
  switch (isIP(address)) {
    case 4:
      return address;
    case 6:
      // A zone is meaningful only on the machine that wrote it.
      return address.includes("%") ? undefined : canonicalAddress(address);
    default:
      return undefined;
  }
}
