/**
 * A connection to a server, plain or with TLS, as its target says.
 */
import { connect as connectTcp, isIP, type LookupFunction, type OnReadOpts, Socket } from "node:net";
import { connect as connectTls, type PeerCertificate } from "node:tls";
import { hasOneName } from "./certificate-names.ts";
import type { HttpTarget } from "./http-client.ts";
import { confinedLookup, isLocalAddress, localAddressError } from "./local-address.ts";

/** What one read of a plain socket brings at most: as much as Node reads by itself. */
const READ_BYTES = 64 * 1024;

/** Every plain socket of this thread reads into it; what came is copied out before the next read. */
const readInto = Buffer.allocUnsafeSlow(READ_BYTES);

/** `protocols`: what is offered by ALPN. `received` is told what comes over a plain socket, in place of `data` events. */
export function openSocket(
  { protocol, host, port, socketPath, tls, isConfined }: HttpTarget,
  unconfined: LookupFunction,
  protocols: readonly string[],
  received?: Received,
): Socket {
  // A name is looked at when it has an address; an address that is written is never looked up.
  if (isConfined && (socketPath !== undefined || isLocalAddress(host)))
    return new Socket().destroy(localAddressError(socketPath ?? host));
  const lookup = isConfined ? confinedLookup(unconfined) : unconfined;
  const at = socketPath === undefined ? { host, port, lookup } : { path: socketPath };
  if (protocol === "http")
    return connectTcp({ ...at, noDelay: true, ...(received ? { onread: reading(received) } : {}) });
  return connectTls({
    ...at,
    ALPNProtocols: [...protocols],
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(tls?.servername === undefined ? {} : { servername: tls.servername }),
    ...(tls?.ca === undefined ? {} : { ca: tls.ca }),
    ...(tls?.cert === undefined ? {} : { cert: tls.cert }),
    ...(tls?.key === undefined ? {} : { key: tls.key }),
    ...(tls?.insecure === true ? { rejectUnauthorized: false } : {}),
    ...(tls?.names === undefined ? {} : { checkServerIdentity: namesChecked(tls.names) }),
  });
}

function namesChecked(names: readonly string[]): (host: string, shown: PeerCertificate) => Error | undefined {
  return (_host, { raw }) =>
    hasOneName(raw, names) ? undefined : new Error(`the certificate has none of the names ${names.join(", ")}`);
}

/** Returns false to stop reading; `resume()` or a reader of the socket goes on. */
export type Received = (chunk: Buffer) => boolean;

/**
 * Node allocates 64 KiB for each read and gives back what was not used: for the small reads of answers and streams a copy
 * out of one buffer that stays is cheaper. A chunk is never a part of that buffer: whoever gets it may keep it.
 */
function reading(received: Received): OnReadOpts {
  return {
    buffer: readInto,
    callback(size) {
      const chunk = Buffer.allocUnsafe(size);
      readInto.copy(chunk, 0, 0, size);
      return received(chunk);
    },
  };
}

/** Connecting to a name with several addresses fails with one error per address; the first says enough. */
export function describeSocketError(error: Error & { code?: string; errors?: Error[] }): string {
  const first = error.message === "" && error.errors?.[0] ? error.errors[0] : error;
  return first.message === "" ? (error.code ?? "connection failed") : first.message;
}
