/**
 * Reads the server name (SNI) from the first bytes of a TLS connection (RFC 8446 section 4.1.2, RFC 6066 section 3),
 * without terminating TLS.
 */
import type { PeerInput } from "../base/peer-inputs.ts";

const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME_EXTENSION = 0;
const HOST_NAME = 0;

export type ClientHello =
  | { readonly state: "incomplete" | "invalid" }
  /** The name is in lowercase, and undefined if the client sent none. */
  | { readonly state: "complete"; readonly serverName: string | undefined };

const INCOMPLETE: ClientHello = { state: "incomplete" };
const INVALID: ClientHello = { state: "invalid" };

/**
 * A ClientHello with post-quantum key shares has a few KiB, in one record, or in a few to pass middleboxes. One that
 * exceeds a limit is invalid.
 */
export function readClientHello(input: PeerInput<"TLS hello">, bytes: Buffer): ClientHello {
  const handshake = joinRecords(input, bytes);
  if (handshake === undefined) return INVALID;
  if (handshake.length > 0 && handshake[0] !== CLIENT_HELLO) return INVALID;
  if (handshake.length < 4) return incomplete(input, bytes);
  const length = handshake.readUIntBE(1, 3);
  if (length > input.maxBytes) return INVALID;
  if (handshake.length < 4 + length) return incomplete(input, bytes);
  try {
    return { state: "complete", serverName: serverNameOf(handshake.subarray(4, 4 + length)) };
  } catch {
    // A length inside of the message exceeds the message.
    return INVALID;
  }
}

function incomplete(input: PeerInput, { length }: Buffer): ClientHello {
  return length > 2 * input.maxBytes ? INVALID : INCOMPLETE;
}

/** Returns undefined if the bytes are not TLS handshake records. Records after the ClientHello are not read. */
function joinRecords(input: PeerInput, bytes: Buffer): Buffer | undefined {
  const parts: Buffer[] = [];
  let joinedBytes = 0;
  let at = 0;
  while (at < bytes.length) {
    if (bytes[at] !== HANDSHAKE_RECORD || (at + 1 < bytes.length && bytes[at + 1] !== 3)) return undefined;
    if (at + 5 > bytes.length) break;
    const length = bytes.readUInt16BE(at + 3);
    // An empty record is not allowed (RFC 8446 section 5.1).
    if (length === 0 || parts.length === input.maxItems) return undefined;
    const part = bytes.subarray(at + 5, at + 5 + length);
    parts.push(part);
    joinedBytes += part.length;
    const [first = part] = parts;
    if (first.length >= 4 && joinedBytes >= 4 + first.readUIntBE(1, 3)) break;
    at += 5 + length;
  }
  return Buffer.concat(parts);
}

/** Throws a RangeError if a length is invalid. */
function serverNameOf(hello: Buffer): string | undefined {
  // The version has 2 bytes, the random value 32.
  let at = 34;
  at += 1 + hello.readUInt8(at);
  at += 2 + hello.readUInt16BE(at);
  at += 1 + hello.readUInt8(at);
  // Without extensions, the message ends here.
  if (at === hello.length) return undefined;
  const end = at + 2 + hello.readUInt16BE(at);
  if (end > hello.length) throw new RangeError("extensions");
  at += 2;
  while (at < end) {
    const type = hello.readUInt16BE(at);
    const length = hello.readUInt16BE(at + 2);
    if (at + 4 + length > end) throw new RangeError("extension");
    if (type === SERVER_NAME_EXTENSION) return hostNameOf(hello.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return undefined;
}

function hostNameOf(list: Buffer): string {
  const length = list.readUInt16BE(3);
  if (list.readUInt8(2) !== HOST_NAME || 5 + length > list.length || length === 0) throw new RangeError("server name");
  const name = list.toString("latin1", 5, 5 + length);
  if (!/^[A-Za-z0-9._-]+$/.test(name)) throw new RangeError("server name");
  return name.toLowerCase();
}
