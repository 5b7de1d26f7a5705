/**
 * `ip()` and `cidr()` follow the Kubernetes CEL library, but return canonical strings instead of opaque values. For
 * example, `ip("::ffff:10.0.0.1")` returns "10.0.0.1", so results can be compared, logged, and used as keys. An invalid
 * address is an evaluation error.
 */
import { isIP } from "node:net";
import { type CelFunc, CelScalar, celFunc, celMethod } from "@bufbuild/cel";

const { BOOL, INT, STRING } = CelScalar;

interface Address {
  readonly family: 4 | 6;
  readonly bits: bigint;
}

interface Network extends Address {
  readonly prefixLength: number;
}

export const ipFunctions: CelFunc[] = [
  celFunc("isIP", [STRING], BOOL, (text) => isIP(text) !== 0),
  celFunc("isCIDR", [STRING], BOOL, (text) => readNetwork(text) !== undefined),
  celFunc("ip", [STRING], STRING, (text) => addressText(address(text))),
  celFunc("cidr", [STRING], STRING, (text) => networkText(network(text))),

  celMethod("family", STRING, [], INT, function () {
    return BigInt(address(this).family);
  }),
  addressTest("isUnspecified", ["0.0.0.0/32", "::/128"]),
  addressTest("isLoopback", ["127.0.0.0/8", "::1/128"]),
  addressTest("isPrivate", ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]),
  addressTest("isLinkLocalUnicast", ["169.254.0.0/16", "fe80::/10"]),
  addressTest("isLinkLocalMulticast", ["224.0.0.0/24", "ff02::/16"]),

  celMethod("containsIP", STRING, [STRING], BOOL, function (text) {
    return contains(network(this), address(text));
  }),
  celMethod("containsCIDR", STRING, [STRING], BOOL, function (text) {
    const inner = network(text);
    const outer = network(this);
    return inner.prefixLength >= outer.prefixLength && contains(outer, inner);
  }),
  celMethod("ip", STRING, [], STRING, function () {
    return addressText(network(this));
  }),
  celMethod("masked", STRING, [], STRING, function () {
    const { family, bits, prefixLength } = network(this);
    const hostBits = BigInt(width(family) - prefixLength);
    return networkText({ family, bits: (bits >> hostBits) << hostBits, prefixLength });
  }),
  celMethod("prefixLength", STRING, [], INT, function () {
    return BigInt(network(this).prefixLength);
  }),
];

function addressTest(name: string, ranges: readonly string[]): CelFunc {
  const networks = ranges.map(network);
  return celMethod(name, STRING, [], BOOL, function () {
    const tested = address(this);
    return networks.some((range) => contains(range, tested));
  });
}

function contains(range: Network, tested: Address): boolean {
  const hostBits = BigInt(width(range.family) - range.prefixLength);
  return range.family === tested.family && range.bits >> hostBits === tested.bits >> hostBits;
}

function address(text: string): Address {
  const read = readAddress(text);
  if (read === undefined) throw new Error("ip: the text is not an IP address");
  return read;
}

function network(text: string): Network {
  const read = readNetwork(text);
  if (read === undefined) throw new Error("cidr: the text is not a network in CIDR form");
  return read;
}

function readAddress(text: string): Address | undefined {
  const family = isIP(text);
  if (family === 4) return { family, bits: bitsOf4(text) };
  // A zone (`fe80::1%eth0`) names an interface of one machine, so addresses with a zone cannot be compared.
  if (family !== 6 || text.includes("%")) return undefined;
  const bits = bitsOf6(text);
  // A dual-stack socket reports IPv4 peers as mapped addresses, but rules use the IPv4 form.
  return bits >> 32n === 0xffffn ? { family: 4, bits: bits & 0xffffffffn } : { family, bits };
}

function readNetwork(text: string): Network | undefined {
  const match = /^([^/]+)\/(0|[1-9]\d{0,2})$/.exec(text);
  if (match === null) return undefined;
  const [, addressPart = "", lengthPart = ""] = match;
  const base = readAddress(addressPart);
  if (base === undefined) return undefined;
  // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
  const mapped = base.family === 4 && addressPart.includes(":") ? 96 : 0;
  const prefixLength = Number(lengthPart) - mapped;
  return prefixLength >= 0 && prefixLength <= width(base.family) ? { ...base, prefixLength } : undefined;
}

function width(family: 4 | 6): number {
  return family === 4 ? 32 : 128;
}

function bitsOf4(text: string): bigint {
  return text.split(".").reduce((bits, part) => (bits << 8n) | BigInt(part), 0n);
}

function bitsOf6(text: string): bigint {
  const lastColon = text.lastIndexOf(":");
  const tail = text.slice(lastColon + 1);
  if (tail.includes(".")) {
    const low = bitsOf4(tail);
    const groups = `${(low >> 16n).toString(16)}:${(low & 0xffffn).toString(16)}`;
    return bitsOf6(text.slice(0, lastColon + 1) + groups);
  }
  const [head = "", rest] = text.split("::");
  const before = head === "" ? [] : head.split(":");
  const after = rest === undefined || rest === "" ? [] : rest.split(":");
  const zeros = new Array<string>(8 - before.length - after.length).fill("0");
  return [...before, ...zeros, ...after].reduce((bits, group) => (bits << 16n) | BigInt(`0x${group}`), 0n);
}

function networkText(range: Network): string {
  return `${addressText(range)}/${range.prefixLength}`;
}

function addressText({ family, bits }: Address): string {
  if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => (bits >> shift) & 0xffn).join(".");
  const groups = Array.from({ length: 8 }, (_, index) => ((bits >> BigInt(112 - 16 * index)) & 0xffffn).toString(16));
  // RFC 5952 section 4.2 shortens the first of the longest runs of two or more zero groups to `::`.
  const runs = [...groups.join(":").matchAll(/\b0(?::0)+\b/g)].sort((a, b) => b[0].length - a[0].length);
  const longest = runs[0];
  if (longest === undefined) return groups.join(":");
  const whole = groups.join(":");
  const before = whole.slice(0, longest.index).replace(/:$/, "");
  const after = whole.slice(longest.index + longest[0].length).replace(/^:/, "");
  return `${before}::${after}`;
}
