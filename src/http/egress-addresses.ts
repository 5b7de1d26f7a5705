/**
 * Decides which addresses are public: not those of this machine, of private and link-local networks, of metadata
 * services of clouds, and of networks without hosts. IPv6 addresses that embed an IPv4 address count as
 * both.
 */
import { BlockList, isIPv4, isIPv6 } from "node:net";
import { embeddedAddresses, equivalentAddresses, isFormOfIPv4 } from "./embedded-addresses.ts";
import { parseAuthority } from "./host.ts";
import { isLocalAddress, isPrivateAddress } from "./local-address.ts";

/** `host` is the name that resolved to the address, or the address itself. */
export type AddressTest = (address: string, host: string) => boolean;

/** Neither local nor private networks, but without hosts of the internet (the registries of RFC 6890). */
const WITHOUT_HOSTS = new BlockList();
for (const [network, prefix] of [
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3],
] as const)
  WITHOUT_HOSTS.addSubnet(network, prefix, "ipv4");
// Networks for benchmarks, the first version of ORCHID, and documentation. Some labs use them.
for (const [network, prefix] of [
  ["2001:2::", 48],
  ["2001:10::", 28],
  ["2001:db8::", 32],
  ["3fff::", 20],
] as const)
  WITHOUT_HOSTS.addSubnet(network, prefix, "ipv6");
// This address belongs to a metadata service of Azure.
WITHOUT_HOSTS.addAddress("168.63.129.16", "ipv4");
const GLOBAL_UNICAST = new BlockList();
GLOBAL_UNICAST.addSubnet("2000::", 3, "ipv6");

/** Also permits the addresses and networks in `allowed`. */
export function publicAddresses(allowed: readonly string[]): AddressTest {
  const exceptions = new BlockList();
  for (const range of allowed) {
    const [address = "", bits] = range.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    if (bits === undefined) exceptions.addAddress(address, family);
    else exceptions.addSubnet(address, Number(bits), family);
  }
  return (text) => {
    const address = withoutZone(text);
    if (equivalentAddresses(address).some((one) => contains(exceptions, one))) return true;
    const all = [address, ...embeddedAddresses(address)];
    const isRefused = (one: string): boolean =>
      contains(WITHOUT_HOSTS, one) || isPrivateAddress(one) || isLocalAddress(one);
    return isGlobal(address) && !all.some(isRefused);
  };
}

/** Networks of IPv6 outside of `2000::/3` are local, except those that are another form of an IPv4 address. */
function isGlobal(address: string): boolean {
  return !isIPv6(address) || contains(GLOBAL_UNICAST, address) || isFormOfIPv4(address);
}

function withoutZone(address: string): string {
  return address.split("%", 1)[0] ?? "";
}

function contains(list: BlockList, address: string): boolean {
  if (isIPv4(address)) return list.check(address, "ipv4");
  return isIPv6(address) && list.check(address, "ipv6");
}

interface ProxiedHost {
  /** IPv6 addresses have no brackets. */
  readonly host: string;
  readonly port: number | undefined;
}

/**
 * Reads the host that a client names. Returns undefined for names that resolvers and rules could read differently, such
 * as `127.1`, `0x7f000001`, `example.com.`, and IPv6 addresses that are not in canonical form.
 */
export function parseProxiedHost(authority: string): ProxiedHost | undefined {
  const named = parseAuthority(authority);
  if (named === undefined || named.text !== authority.toLowerCase() || named.port === 0) return undefined;
  const { name: host, port } = named;
  if (isIPv6(host)) return embeddedAddresses(host).some(isPublicForm) ? undefined : { host, port };
  const labels = host.split(".");
  const isNumeric = /^(?:[0-9]+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? "");
  return host.length > 253 || (isNumeric && !isIPv4(host)) ? undefined : { host, port };
}

/** `::` and `::1` embed these two addresses. */
function isPublicForm(embedded: string): boolean {
  return embedded !== "0.0.0.0" && embedded !== "0.0.0.1";
}
