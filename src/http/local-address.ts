/**
 * Decides which addresses confined connections must not use: addresses of this machine, link-local addresses (where
 * clouds serve credentials), and, in a cluster, private addresses that are not allowed.
 */
import { BlockList, isIP, isIPv6 } from "node:net";
import { networkInterfaces } from "node:os";
import { embeddedAddresses, equivalentAddresses } from "./embedded-addresses.ts";
import { canonicalAddress } from "./host.ts";

const ALWAYS = new BlockList();
for (const [network, prefix] of [
  ["0.0.0.0", 8],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
] as const)
  ALWAYS.addSubnet(network, prefix, "ipv4");
ALWAYS.addAddress("::", "ipv6");
ALWAYS.addAddress("::1", "ipv6");
ALWAYS.addSubnet("fe80::", 10, "ipv6");
// This address belongs to the AWS metadata service.
ALWAYS.addAddress("fd00:ec2::254", "ipv6");

/** IPv6 addresses that embed an IPv4 address count as both. */
export function isLocalAddress(address: string): boolean {
  const all = formsOf(address);
  if (all.some((one) => includes(ALWAYS, one))) return true;
  return Object.values(networkInterfaces()).some((list) => list?.some((own) => all.includes(own.address)) ?? false);
}

/** Returns the address in canonical form, without its zone, and the IPv4 addresses that it embeds. */
function formsOf(address: string): string[] {
  const [bare = ""] = address.split("%");
  if (!isIPv6(bare)) return [bare];
  return [canonicalAddress(bare), ...embeddedAddresses(bare)];
}

const PRIVATE = new BlockList();
for (const [network, prefix] of [
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["172.16.0.0", 12],
  ["192.168.0.0", 16],
] as const)
  PRIVATE.addSubnet(network, prefix, "ipv4");
PRIVATE.addSubnet("fc00::", 7, "ipv6");

/** IPv6 addresses that embed an IPv4 address count as both. */
export function isPrivateAddress(address: string): boolean {
  return formsOf(address).some((one) => includes(PRIVATE, one));
}

/** Undefined if private addresses are not refused. */
let allowed: BlockList | undefined;

/**
 * Refuses private addresses outside of `networks`, a comma-separated list of CIDR blocks. Throws if an entry is not a
 * network.
 */
export function restrictNetworks(networks: string | undefined): void {
  if (networks === undefined) {
    allowed = undefined;
    return;
  }
  const list = new BlockList();
  for (const network of networks.split(",").map((one) => one.trim())) {
    if (network === "") continue;
    const [address = "", prefix, ...rest] = network.split("/");
    const family = isIP(address);
    const most = family === 6 ? 128 : 32;
    const bits = prefix === undefined ? most : /^\d{1,3}$/.test(prefix) ? Number(prefix) : -1;
    if (family === 0 || bits < 0 || bits > most || rest.length > 0)
      throw new Error(`${network} is not a network: expected for example 10.20.0.0/16`);
    list.addSubnet(address, bits, family === 6 ? "ipv6" : "ipv4");
  }
  allowed = list;
}

export function refusesPrivateAddresses(): boolean {
  return allowed !== undefined;
}

export function isAllowedNetwork(address: string): boolean {
  const [bare = ""] = address.split("%");
  return equivalentAddresses(bare).some((one) => includes(allowed, one));
}

/** Matches the DNS name of a Service or of a pod below it. */
const SERVICE_NAME = /(?:^|\.)([^.]+)\.([^.]+)\.svc(?:\.cluster\.local)?\.?$/i;

export function serviceOfName(host: string): { readonly name: string; readonly namespace: string } | undefined {
  const [, name, namespace] = SERVICE_NAME.exec(host) ?? [];
  return name === undefined || namespace === undefined ? undefined : { name, namespace };
}

/** `host` is the name that resolved to the address, or the address itself. */
export function isRefusedAddress(address: string, host: string): boolean {
  if (isLocalAddress(address)) return true;
  if (allowed === undefined || !isPrivateAddress(address)) return false;
  return !isAllowedNetwork(address) && serviceOfName(host) === undefined;
}

function includes(list: BlockList | undefined, address: string): boolean {
  const family = isIP(address);
  return family !== 0 && list?.check(address, family === 6 ? "ipv6" : "ipv4") === true;
}
