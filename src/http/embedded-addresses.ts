/**
 * Finds the IPv4 addresses to which transition mechanisms can deliver packets for an IPv6 address.
 */
import { isIPv6 } from "node:net";

/** Returns an empty list for IPv4 addresses and names. */
export function embeddedAddresses(address: string): string[] {
  if (!isIPv6(address)) return [];
  const groups = groupsOf(address);
  const ipv4 = (high: number, low: number): string => [high >> 8, high & 255, low >> 8, low & 255].join(".");
  const [first = 0, second = 0, third = 0, , fifth = 0, sixth = 0, seventh = 0, eighth = 0] = groups;
  const areZero = (from: number, to: number): boolean => groups.slice(from, to).every((group) => group === 0);
  const found: string[] = [];
  // IPv4-mapped and IPv4-compatible addresses.
  if (areZero(0, 5) && (sixth === 0 || sixth === 0xffff)) found.push(ipv4(seventh, eighth));
  // NAT64 with the well-known prefix (RFC 6052). Local prefixes (RFC 8215) can embed addresses at other positions.
  if (first === 0x64 && second === 0xff9b && areZero(2, 6)) found.push(ipv4(seventh, eighth));
  // 6to4.
  if (first === 0x2002) found.push(ipv4(second, third));
  // Teredo, in which the client's address is inverted.
  if (first === 0x2001 && second === 0) found.push(ipv4(seventh ^ 0xffff, eighth ^ 0xffff));
  // ISATAP (RFC 5214), with any prefix.
  if ((fifth & ~0x0200) === 0 && sixth === 0x5efe) found.push(ipv4(seventh, eighth));
  return found;
}

/** True for IPv4-mapped and IPv4-compatible addresses, and for NAT64 with the well-known prefix. */
export function isFormOfIPv4(address: string): boolean {
  if (!isIPv6(address)) return false;
  const groups = groupsOf(address);
  const areZero = (from: number, to: number): boolean => groups.slice(from, to).every((group) => group === 0);
  const isMapped = areZero(0, 5) && (groups[5] === 0 || groups[5] === 0xffff);
  return isMapped || (groups[0] === 0x64 && groups[1] === 0xff9b && areZero(2, 6));
}

/**
 * Returns the address and, if it is another form of an IPv4 address, that one. What is allowed for one of them is allowed
 * for the other, but not for an address of another network that embeds it.
 */
export function equivalentAddresses(address: string): string[] {
  return isFormOfIPv4(address) ? [address, ...embeddedAddresses(address)] : [address];
}

function groupsOf(address: string): number[] {
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address);
  const [, head = "", a = "", b = "", c = "", d = ""] = dotted ?? [];
  const pair = (high: string, low: string): string => ((Number(high) << 8) | Number(low)).toString(16);
  const whole = dotted === null ? address : `${head}${pair(a, b)}:${pair(c, d)}`;
  const [left = "", right] = whole.split("::");
  const parse = (part: string): number[] =>
    part.split(":").flatMap((group) => (group === "" ? [] : [Number.parseInt(group, 16)]));
  const before = parse(left);
  const after = parse(right ?? "");
  return [...before, ...new Array<number>(Math.max(0, 8 - before.length - after.length)).fill(0), ...after];
}
