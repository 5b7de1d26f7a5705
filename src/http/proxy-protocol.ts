/**
 * Reads and writes headers of the PROXY protocol, in which a load balancer sends the addresses of a client before the
 * first bytes of a connection. Version 1 is a line of text, and version 2 is binary.
 */
import { isIPv4, isIPv6 } from "node:net";
import type { PeerInput } from "../base/peer-inputs.ts";
import { canonicalAddress } from "./host.ts";

export interface Endpoint {
  readonly address: string;
  readonly port: number;
}

export interface ProxiedAddresses {
  readonly source: Endpoint;
  readonly destination: Endpoint;
}

export type ProxyHeader =
  /** `absent` means that the connection does not begin with a header. */
  | { readonly state: "incomplete" | "invalid" | "absent" }
  | {
      readonly state: "complete";
      readonly version: "v1" | "v2";
      /** The first byte after the header. */
      readonly length: number;
      /** Undefined for connections of the load balancer itself, such as health checks, and for unknown clients. */
      readonly addresses: ProxiedAddresses | undefined;
    };

const V1_PREFIX = Buffer.from("PROXY ");
/** The longest line of version 1, which includes CRLF. */
const MAX_V1_BYTES = 107;
const V2_SIGNATURE = Buffer.from("\r\n\r\n\0\r\nQUIT\n", "latin1");
const V2_FIXED_BYTES = 16;
const V2_LOCAL = 0x20;
const V2_PROXY = 0x21;
const V2_FAMILIES = { unspecified: 0x00, tcp4: 0x11, tcp6: 0x21, unixStream: 0x31 } as const;
const V2_ADDRESS_BYTES = { tcp4: 12, tcp6: 36, unixStream: 216 } as const;

const INCOMPLETE: ProxyHeader = { state: "incomplete" };
const INVALID: ProxyHeader = { state: "invalid" };
const ABSENT: ProxyHeader = { state: "absent" };

/** The limit leaves room for the optional fields that cloud load balancers add after the addresses. */
export function readProxyHeader(input: PeerInput<"PROXY header">, bytes: Buffer): ProxyHeader {
  if (startsLike(bytes, V2_SIGNATURE)) return bytes.length < V2_FIXED_BYTES ? INCOMPLETE : readV2(input, bytes);
  if (startsLike(bytes, V1_PREFIX)) return bytes.length < V1_PREFIX.length ? INCOMPLETE : readV1(bytes);
  return ABSENT;
}

/** Compares as many bytes as both have. */
function startsLike(bytes: Buffer, prefix: Buffer): boolean {
  const length = Math.min(bytes.length, prefix.length);
  return bytes.compare(prefix, 0, length, 0, length) === 0;
}

function readV1(bytes: Buffer): ProxyHeader {
  const end = bytes.subarray(0, MAX_V1_BYTES).indexOf("\r\n");
  if (end < 0) return bytes.length < MAX_V1_BYTES ? INCOMPLETE : INVALID;
  const length = end + 2;
  const [, family, source = "", destination = "", sourcePort, destinationPort, ...others] = bytes
    .toString("latin1", 0, end)
    .split(" ");
  // Receivers must ignore the rest of a line with an unknown family.
  if (family === "UNKNOWN") return { state: "complete", version: "v1", length, addresses: undefined };
  const isAddress = family === "TCP4" ? isIPv4 : family === "TCP6" ? isPlainIPv6 : undefined;
  const ports = [parsePort(sourcePort), parsePort(destinationPort)];
  const [from, to] = ports;
  if (isAddress === undefined || !isAddress(source) || !isAddress(destination)) return INVALID;
  if (from === undefined || to === undefined || others.length > 0) return INVALID;
  return {
    state: "complete",
    version: "v1",
    length,
    addresses: {
      source: { address: canonicalAddress(source), port: from },
      destination: { address: canonicalAddress(destination), port: to },
    },
  };
}

/** A zone is meaningful only on the machine that wrote it. */
function isPlainIPv6(text: string): boolean {
  return isIPv6(text) && !text.includes("%");
}

function parsePort(text: string | undefined): number | undefined {
  if (text === undefined || !/^(?:0|[1-9]\d{0,4})$/.test(text)) return undefined;
  const port = Number(text);
  return port <= 65_535 ? port : undefined;
}

function readV2(input: PeerInput, bytes: Buffer): ProxyHeader {
  const command = bytes[12];
  const family = bytes[13];
  const length = V2_FIXED_BYTES + bytes.readUInt16BE(14);
  if ((command !== V2_LOCAL && command !== V2_PROXY) || length > input.maxBytes) return INVALID;
  if (bytes.length < length) return INCOMPLETE;
  const complete = (addresses: ProxiedAddresses | undefined): ProxyHeader => ({
    state: "complete",
    version: "v2",
    length,
    addresses,
  });
  // Receivers must accept any family here and use the addresses of the connection.
  if (command === V2_LOCAL) return complete(undefined);
  const addressBytes = bytes.subarray(V2_FIXED_BYTES, length);
  switch (family) {
    case V2_FAMILIES.unspecified:
      return complete(undefined);
    case V2_FAMILIES.unixStream:
      return addressBytes.length < V2_ADDRESS_BYTES.unixStream ? INVALID : complete(undefined);
    case V2_FAMILIES.tcp4:
      return addressBytes.length < V2_ADDRESS_BYTES.tcp4 ? INVALID : complete(binaryAddresses(addressBytes, 4));
    case V2_FAMILIES.tcp6:
      return addressBytes.length < V2_ADDRESS_BYTES.tcp6 ? INVALID : complete(binaryAddresses(addressBytes, 16));
    default:
      return INVALID;
  }
}

function binaryAddresses(bytes: Buffer, size: 4 | 16): ProxiedAddresses {
  const addressAt = (start: number): string => {
    const part = bytes.subarray(start, start + size);
    if (size === 4) return part.join(".");
    const groups = Array.from({ length: 8 }, (_, i) => part.readUInt16BE(2 * i).toString(16));
    return canonicalAddress(groups.join(":"));
  };
  return {
    source: { address: addressAt(0), port: bytes.readUInt16BE(2 * size) },
    destination: { address: addressAt(size), port: bytes.readUInt16BE(2 * size + 2) },
  };
}

/**
 * Returns a header of version 2. Addresses of different families are written as IPv6. Without known addresses, the
 * header says that the client is unknown.
 */
export function formatProxyHeader(addresses: ProxiedAddresses | undefined): Buffer {
  const source = addresses && binaryAddress(addresses.source.address);
  const destination = addresses && binaryAddress(addresses.destination.address);
  if (addresses === undefined || source === undefined || destination === undefined)
    return v2Header(V2_FAMILIES.unspecified, Buffer.alloc(0));
  const isV4 = source.length === 4 && destination.length === 4;
  const ports = Buffer.alloc(4);
  ports.writeUInt16BE(addresses.source.port, 0);
  ports.writeUInt16BE(addresses.destination.port, 2);
  const both = isV4 ? [source, destination] : [mapped(source), mapped(destination)];
  return v2Header(isV4 ? V2_FAMILIES.tcp4 : V2_FAMILIES.tcp6, Buffer.concat([...both, ports]));
}

function v2Header(family: number, content: Buffer): Buffer {
  const fixed = Buffer.alloc(V2_FIXED_BYTES);
  V2_SIGNATURE.copy(fixed);
  fixed[12] = V2_PROXY;
  fixed[13] = family;
  fixed.writeUInt16BE(content.length, 14);
  return Buffer.concat([fixed, content]);
}

const MAPPED_PREFIX = Buffer.from("00000000000000000000ffff", "hex");

function mapped(address: Buffer): Buffer {
  return address.length === 16 ? address : Buffer.concat([MAPPED_PREFIX, address]);
}

/** Returns undefined if the text is not an address. A zone is omitted. */
function binaryAddress(text: string): Buffer | undefined {
  const address = text.split("%", 1)[0] ?? "";
  if (isIPv4(address)) return Buffer.from(address.split(".").map(Number));
  if (!isIPv6(address)) return undefined;
  const dotted = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(address);
  const tail = dotted === null ? undefined : Buffer.from((dotted[2] ?? "").split(".").map(Number)).toString("hex");
  const whole = tail === undefined ? address : `${dotted?.[1]}${tail.slice(0, 4)}:${tail.slice(4)}`;
  const [head = "", rest] = whole.split("::");
  const groupsOf = (part: string): string[] => part.split(":").filter((group) => group !== "");
  const before = groupsOf(head);
  const after = groupsOf(rest ?? "");
  const groups = [...before, ...new Array<string>(8 - before.length - after.length).fill("0"), ...after];
  return Buffer.from(groups.map((group) => group.padStart(4, "0")).join(""), "hex");
}
