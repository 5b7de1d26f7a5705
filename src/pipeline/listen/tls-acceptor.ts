/**
 * Performs the TLS handshakes of a listener. A new configuration creates a new acceptor while the listener stays open,
 * and handshakes in progress finish with the old acceptor.
 */
import type { X509Certificate } from "node:crypto";
import type { Socket } from "node:net";
import { createSecureContext, createServer, type SecureContext, type TLSSocket, type TlsOptions } from "node:tls";
import { peerInput } from "../../base/peer-inputs.ts";
import { canonicalServerName, createHostTable } from "../../http/host.ts";
import type { ListenerCertificate, ListenerTls } from "../../http/tls-listener.ts";

const CERTIFICATE = peerInput("client/certificate");

export interface TlsAcceptor {
  enter(socket: Socket): void;
}

export interface TlsAcceptorOptions {
  readonly handshakeTimeoutMs: number;
  readonly protocols: readonly string[];
  /** `identity` is the subject of the client's certificate. */
  opened(socket: TLSSocket, identity: string | undefined): void;
}

export function createTlsAcceptor(
  tls: ListenerTls,
  { handshakeTimeoutMs, protocols, opened }: TlsAcceptorOptions,
): TlsAcceptor {
  const { minVersion, ciphers, clientAuth } = tls;
  const floors = { minVersion, ...(ciphers === undefined ? {} : { ciphers }) };
  const trust = clientAuth === undefined ? {} : { ca: clientAuth.ca };
  const createContext = ({ cert, key }: ListenerCertificate): SecureContext =>
    createSecureContext({ cert, key, ...floors, ...trust });
  const [first, ...others] = tls.certificates;
  const standard = createContext(first);
  const names = createHostTable(
    [first, ...others].flatMap((one) => {
      const context = one === first ? standard : createContext(one);
      return one.hosts.map((host) => [host, context] as const);
    }),
  );
  const selectContext: TlsOptions["SNICallback"] = (servername, done) =>
    done(null, names.find(canonicalServerName(servername)) ?? standard);
  const server = createServer({
    cert: first.cert,
    key: first.key,
    ...floors,
    ...trust,
    allowHalfOpen: true,
    handshakeTimeout: handshakeTimeoutMs,
    // An empty list would reject clients that offer protocols.
    ...(protocols.length === 0 ? {} : { ALPNProtocols: [...protocols] }),
    // With the callback, each handshake is interrupted to run JavaScript.
    ...(others.length === 0 ? {} : { SNICallback: selectContext }),
    ...(clientAuth === undefined ? {} : { requestCert: true, rejectUnauthorized: clientAuth.mode === "require" }),
  });
  server.on("secureConnection", (socket) => {
    const shown = clientAuth === undefined ? undefined : socket.getPeerX509Certificate();
    // `optional` accepts clients without a certificate, but not clients with an invalid certificate.
    if (shown !== undefined && (!socket.authorized || shown.raw.length > CERTIFICATE.maxBytes)) socket.destroy();
    else opened(socket, shown && formatSubject(shown));
  });
  server.on("tlsClientError", (_error, socket) => socket.destroy());
  return {
    enter: (socket) => void server.emit("connection", socket),
  };
}

/**
 * Formats the subject in the certificate's order, such as `CN=alice,O=Example`, with commas inside values escaped (RFC
 * 4514).
 */
function formatSubject({ subject }: X509Certificate): string {
  return subject.split("\n").join(",");
}
