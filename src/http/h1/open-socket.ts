/**
 * Opens a connection to a server, plain or with TLS, as the target specifies.
 */
import { connect as connectTcp, isIP, type LookupFunction, Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { fileDescriptors } from "../../base/file-descriptors.ts";
import { namesChecked } from "../certificates.ts";
import type { HttpTarget } from "../http-client.ts";
import { type Received, readConnecting, readOptions } from "./socket-reads.ts";

/**
 * The gateway offers `protocols` by ALPN. `received` replaces `data` events. `others` is the number of connections that
 * the target has.
 */
export function openSocket(
  { protocol, host, port, socketPath, tls, egress }: HttpTarget,
  resolve: LookupFunction,
  protocols: readonly string[],
  others: number,
  received?: Received,
): Socket {
  const fault = egress.fault({ host, socketPath }) ?? fileDescriptors.connectionFault(others);
  if (fault) return new Socket().destroy(fault);
  const lookup = egress.lookup(resolve);
  const at = socketPath === undefined ? { host, port, lookup } : { path: socketPath };
  const reading = readOptions(received);
  const socket =
    protocol === "http"
      ? connectTcp({ ...at, noDelay: true, ...reading })
      : connectTls({
          ...at,
          ...reading,
          ALPNProtocols: [...protocols],
          ...(isIP(host) === 0 ? { servername: host } : {}),
          ...(tls?.servername === undefined ? {} : { servername: tls.servername }),
          ...(tls?.ca === undefined ? {} : { ca: tls.ca }),
          ...(tls?.cert === undefined ? {} : { cert: tls.cert }),
          ...(tls?.key === undefined ? {} : { key: tls.key }),
          ...(tls?.insecure === true ? { rejectUnauthorized: false } : {}),
          ...(tls?.names === undefined ? {} : { checkServerIdentity: namesChecked(tls.names) }),
        });
  if (received) readConnecting(socket, received, reading);
  countConnecting(socket, socketPath === undefined && isIP(host) === 0);
  return socket;
}

/** The descriptor is assigned after the name is resolved, or in the next tick. */
function countConnecting(socket: Socket, isNamed: boolean): void {
  let assigned: (() => void) | undefined = fileDescriptors.connecting();
  const over = (): void => {
    assigned?.();
    assigned = undefined;
  };
  if (!isNamed) {
    process.nextTick(over);
    return;
  }
  socket.once("lookup", over);
  socket.once("close", over);
}

/** A connection to a name with several addresses may fail with one error per address. The first error is sufficient. */
export function describeSocketError(error: Error & { code?: string; errors?: Error[] }): string {
  const first = error.message === "" && error.errors?.[0] ? error.errors[0] : error;
  if (PLAIN_SERVER_CODES.has(error.code ?? ""))
    return "the server responds without TLS: use http:// instead of https://";
  return first.message === "" ? (error.code ?? "connection failed") : first.message;
}

/** OpenSSL reports these errors if the bytes of the server are not a TLS record. */
const PLAIN_SERVER_CODES: ReadonlySet<string> = new Set([
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
  "ERR_SSL_HTTP_REQUEST",
]);
