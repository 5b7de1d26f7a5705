/**
 * Detects loopback addresses, link-local addresses (where clouds serve credentials), and addresses of the machine's
 * own interfaces. Authors of Kubernetes documents must not reach them through the gateway. The check runs when a
 * connection is opened, so DNS rebinding cannot bypass it.
 */
import { BlockList, isIP, type LookupFunction } from "node:net";
import { networkInterfaces } from "node:os";

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

export function isLocalAddress(address: string): boolean {
  const [bare = ""] = address.split("%");
  const family = isIP(bare);
  if (family === 0) return false;
  if (ALWAYS.check(bare, family === 6 ? "ipv6" : "ipv4")) return true;
  const plain = bare.replace(/^::ffff:(?=\d+\.)/i, "");
  return Object.values(networkInterfaces()).some((list) => list?.some((own) => own.address === plain) ?? false);
}

export function localAddressError(host: string): Error {
  const message = `${host} is an address of the gateway's own machine, which documents of a cluster cannot use`;
  return Object.assign(new Error(message), { code: "EACCES" });
}

/** Wraps a lookup to omit local addresses. The lookup of a name without other addresses fails. */
export function confinedLookup(lookup: LookupFunction): LookupFunction {
  return (name, options, callback) => {
    lookup(name, { ...options, all: true }, (error, found) => {
      const all = Array.isArray(found) ? found : [];
      const fitting = all.filter(({ address }) => !isLocalAddress(address));
      const [first] = fitting;
      const failed = error ?? (first ? null : localAddressError(name));
      if (options.all) callback(failed, fitting);
      else callback(failed, first?.address ?? "", first?.family ?? 0);
    });
  };
}
