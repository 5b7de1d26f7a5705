/**
 * A connection to a server, plain or with TLS, as its target says.
 */
import { connect as connectTcp, isIP, type LookupFunction, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { HttpTarget } from "./http-client.ts";

/** `protocols`: what is offered by ALPN. */
export function openSocket(
  { protocol, host, port, socketPath, tls }: HttpTarget,
  lookup: LookupFunction,
  protocols: readonly string[],
): Socket {
  const at = socketPath === undefined ? { host, port, lookup } : { path: socketPath };
  if (protocol === "http") return connectTcp({ ...at, noDelay: true });
  return connectTls({
    ...at,
    ALPNProtocols: [...protocols],
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(tls?.servername === undefined ? {} : { servername: tls.servername }),
    ...(tls?.ca === undefined ? {} : { ca: tls.ca }),
    ...(tls?.cert === undefined ? {} : { cert: tls.cert }),
    ...(tls?.key === undefined ? {} : { key: tls.key }),
    ...(tls?.insecure === true ? { rejectUnauthorized: false } : {}),
  });
}

/** Connecting to a name with several addresses fails with one error per address; the first says enough. */
export function describeSocketError(error: Error & { code?: string; errors?: Error[] }): string {
  const first = error.message === "" && error.errors?.[0] ? error.errors[0] : error;
  return first.message === "" ? (error.code ?? "connection failed") : first.message;
}
