/**
 * A socket that takes requests: the only file that knows Node's HTTP server. It turns each request into an
 * Exchange and a sink, guards the edge (heads, timeouts, connection counts), and drains without dropping anyone.
 */
import { createServer, type IncomingMessage, type Server, ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, Server as NetServer, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { GatewayError } from "../../core/errors.ts";
import { Exchange, type GatewayRequest, NO_BODY, type RequestBody } from "../../core/exchange.ts";
import { asGatewayError, errorReply } from "../../core/reply.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import type { Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/process/clock.ts";
import type { HeapPressure } from "../../lib/process/heap-pressure.ts";
import { type IdSource, isRequestId } from "../../lib/text/ids.ts";
import { handle } from "../phases/pipeline.ts";
import type { PipelineEnv, Served } from "../phases/pipeline-env.ts";
import { ClientConnection } from "./client-connection.ts";
import { type Head, readHead } from "./edge.ts";
import { beginRefusal, brokenHead, type Refusal, type RefusedHead, refusedRequest } from "./edge-refusal.ts";
import { watchIdle } from "./idle.ts";
import { endRawly, ResponseSink, refuseRawly, type UpgradeOffer } from "./response-sink.ts";
import { Tunnel } from "./tunnel.ts";
import { headWithoutOffer, isWebSocket } from "./upgrade-offer.ts";

const KEEP_ALIVE_MS = 65_000;
const MAX_HEADER_BYTES = 16 * 1024;
/** A flood of connections must not become a flood of log lines. */
const SAY_REFUSED_EVERY_MS = 10_000;
/** The collector needs a moment; clients should not all come back at once. */
const RETRY_SECONDS = "2";

/** What a request says in `expect`; only HTTP/1.1 can. */
type Expectation = "nothing" | "continue" | "unknown";

export interface ListenerAddress {
  /** All interfaces if undefined. */
  readonly address: string | undefined;
  readonly port: number;
  readonly tls: { readonly cert: string; readonly key: string } | undefined;
}

export interface ListenerLimits {
  /** Further ones are closed before they are read. */
  readonly maxConnections: number;
  /** A client has this long to send its head; checked at the interval, so that slow ones are gone in time. */
  readonly headersTimeoutMs: number;
  readonly checkIntervalMs: number;
  /** An upgraded connection (WebSocket) may be silent in both directions for this long. */
  readonly tunnelIdleMs: number;
}

export const LISTENER_LIMITS: ListenerLimits = {
  maxConnections: 10_000,
  headersTimeoutMs: 10_000,
  checkIntervalMs: 1_000,
  tunnelIdleMs: 3_600_000,
};

export interface ListenerEnv extends PipelineEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly ids: IdSource;
  readonly limits: ListenerLimits;
  readonly heap: HeapPressure;
  isTrustedPeer(address: string): boolean;
  /** An exception that belongs to no request: counted and logged; the connection it came from is closed. */
  unexpected(error: unknown, client: string | undefined): void;
}

export interface OpenListener {
  readonly port: number;
  /** Requests that arrive from now on meet this configuration. */
  serve(served: Served): void;
  setTls(tls: { readonly cert: string; readonly key: string }): void;
  active(): { connections: number; requests: number };
  /**
   * Stops accepting; resolves when every request has ended. Connections that are kept for another request are closed at
   * once, or after `lingerMs`: then a request that is on its way is still answered, and its connection closed in order.
   */
  drain(lingerMs?: number): Promise<void>;
  /** Cuts what is left. */
  destroy(): void;
}

/**
 * Rejects with the system's error (EADDRINUSE, EACCES, …) if the address cannot be bound. `inheritedFd` listens already
 * and stands in for the address.
 */
export function openListener(
  at: ListenerAddress,
  first: Served,
  env: ListenerEnv,
  inheritedFd?: number,
): Promise<OpenListener> {
  let served = first;
  let draining = false;
  let isLingering = false;
  let requests = 0;
  let connections = 0;
  let refused = 0;
  let sayRefusedMs = 0;
  let resolveDrained: () => void = ignore;
  const drained = new Promise<void>((resolve) => {
    resolveDrained = resolve;
  });
  const scheme = at.tls ? "https" : "http";
  const idle = watchIdle(env.clock);
  const streams = new Set<ResponseSink>();
  const tunnels = new Set<Tunnel>();
  /** Sockets that Node has let go of: it would not close them with the others. */
  const handedOver = new Set<Socket>();
  const seenBefore = new WeakSet<object>();

  const options = {
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: env.limits.headersTimeoutMs,
    // Long uploads are fine as long as bytes keep coming: the idle watch looks at that.
    requestTimeout: 0,
    connectionsCheckingInterval: env.limits.checkIntervalMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    // We say it ourselves, in the form of all refusals (edge.ts).
    requireHostHeader: false,
    // Since Node 24.9 other offers need no detour: they are requests like any other.
    shouldUpgradeCallback: isWebSocket,
  };
  const server: Server = at.tls
    ? createTlsServer({ ...options, ...at.tls, minVersion: "TLSv1.2" })
    : createServer(options);
  // Node would keep 1,000 lines and drop the rest in silence; we count them ourselves (edge.ts).
  server.maxHeadersCount = 0;
  server.maxConnections = env.limits.maxConnections;

  function onRequest(req: IncomingMessage, res: ServerResponse, expects: Expectation): void {
    const connection = ClientConnection.of(req.socket);
    // What follows a refused request may as well be the rest of it (RFC 9112 section 11.2).
    if (connection.isClosing || connection.hasLastTurn) return;
    connection.latest = req;
    if (res.socket === null) connection.holdRequest(res, () => beginRequest(req, res, expects, connection));
    else beginRequest(req, res, expects, connection);
  }

  function beginRequest(
    req: IncomingMessage,
    res: ServerResponse,
    expects: Expectation,
    connection: ClientConnection,
  ): void {
    if (connection.isClosing) return;
    const sink = sinkFor(req, res, connection, expects !== "nothing");
    if (expects === "unknown") refuseAtEdge(req, sink, new GatewayError("expectation_failed"));
    else begin(req, sink);
  }

  function sinkFor(
    req: IncomingMessage,
    res: ServerResponse,
    connection: ClientConnection,
    expectsContinue: boolean,
    upgrade?: UpgradeOffer,
  ): ResponseSink {
    requests += 1;
    const sink = new ResponseSink(req, res, {
      draining: draining || env.heap.level !== "normal",
      expectsContinue,
      idle,
      clock: env.clock,
      connection,
      streams,
      unexpected: guard,
      ...(upgrade ? { upgrade } : {}),
    });
    sink.afterClose = requestEnded;
    return sink;
  }

  function begin(req: IncomingMessage, sink: ResponseSink): void {
    if (env.heap.level === "full") {
      refuseAtEdge(req, sink, new GatewayError("overloaded", { headers: { "retry-after": RETRY_SECONDS } }));
      return;
    }
    let head: Head;
    const { socket } = req;
    try {
      head = readHead(req, env.isTrustedPeer(socket.remoteAddress ?? ""), sink.isUpgrade);
    } catch (error) {
      refuseAtEdge(req, sink, asGatewayError(error));
      return;
    }
    handle(env, served, exchangeOf(req, head), sink);
  }

  function refuseAtEdge(req: IncomingMessage, sink: ResponseSink, error: GatewayError): void {
    const refusal = refusalOf(req.socket, headOf(req), error);
    sink.onClose = (complete) => refusal.settle(complete);
    sink.refuse(refusal.reply);
  }

  function refusalOf(socket: Socket, head: RefusedHead, error: GatewayError): Refusal {
    const request = refusedRequest(head, scheme);
    return beginRefusal(env, newExchange(socket, idFor(request.headers), request), error);
  }

  function exchangeOf(req: IncomingMessage, head: Head): Exchange {
    const request: GatewayRequest = {
      method: head.method,
      scheme,
      host: head.host,
      path: head.path,
      query: head.query,
      version: head.version,
      headers: head.headers,
      body: bodyOf(req, head),
    };
    return newExchange(req.socket, idFor(head.headers), request);
  }

  function idFor(headers: HeaderList): string {
    const given = headers.get("x-request-id");
    return given !== undefined && isRequestId(given) ? given : env.ids.hex(8);
  }

  function newExchange(socket: Socket, id: string, request: GatewayRequest): Exchange {
    return new Exchange({
      id,
      listener: served.listener.name,
      source: { address: unmapped(socket.remoteAddress ?? ""), port: socket.remotePort ?? 0 },
      request,
      startedAt: env.clock.now(),
      startedMs: env.clock.monotonicMs(),
    });
  }

  function requestEnded(connection: ClientConnection): void {
    requests -= 1;
    connection.next();
    if (draining && requests === 0 && !isLingering) resolveDrained();
  }

  /** Node has read a head after which it reads no more: the socket is ours, once the answers before it are out. */
  function onHandedOver(socket: Socket, begin: (connection: ClientConnection) => void): void {
    const connection = ClientConnection.of(socket);
    connection.handedOver();
    if (!handedOver.has(socket)) {
      handedOver.add(socket);
      socket.once("close", () => handedOver.delete(socket));
    }
    connection.lastTurn(() => begin(connection));
  }

  function beginUpgrade(req: IncomingMessage, firstBytes: Buffer, connection: ClientConnection): void {
    const { socket } = connection;
    connection.isClosing = true;
    socket.setTimeout(0);
    // A response object of our own writes the answer if nobody upgrades.
    const res = new ServerResponse(req);
    res.shouldKeepAlive = false;
    res.assignSocket(socket);
    res.on("finish", () => endRawly(socket, env.clock));
    begin(req, sinkFor(req, res, connection, false, { socket, firstBytes, join }));
  }

  function join(client: Duplex, backend: Duplex, firstBytes: Buffer, closed: () => void): void {
    const tunnel = new Tunnel(client, backend, {
      clock: env.clock,
      idle,
      idleLimitMs: env.limits.tunnelIdleMs,
      closed() {
        tunnels.delete(tunnel);
        closed();
      },
      unexpected: (error) => env.unexpected(error, nameOf(client as Socket)),
    });
    tunnels.add(tunnel);
    tunnel.sendFirst(firstBytes);
    if (draining) tunnel.goAway();
  }

  /** An offer that we do not take is no reason to refuse the request: Node reads it once more, without the offer. */
  function readAgain(req: IncomingMessage, firstBytes: Buffer, connection: ClientConnection): void {
    const { socket } = connection;
    connection.handBack();
    seenBefore.add(socket);
    socket.unshift(Buffer.concat([headWithoutOffer(req), firstBytes]));
    server.emit(at.tls ? "secureConnection" : "connection", socket);
  }

  function refuseConnection(connection: ClientConnection, error: GatewayError): void {
    connection.isClosing = true;
    refuseRawly(connection.socket, errorReply(error), env.clock);
  }

  /** What began as a request and cannot become one. */
  function refuseHead(connection: ClientConnection, head: RefusedHead, error: GatewayError): void {
    connection.isClosing = true;
    const { socket } = connection;
    const refusal = refusalOf(socket, head, error);
    socket.once("close", (hadError) => refusal.settle(!hadError));
    refuseRawly(socket, refusal.reply, env.clock);
  }

  function onClientError(error: ParserError, socket: Socket): void {
    const connection = ClientConnection.of(socket);
    if (connection.isClosing || connection.hasLastTurn) return;
    if (!socket.writable) {
      socket.destroy();
      return;
    }
    const { answering, latest } = connection;
    // The body of a request broke: if that one waits, the refusal takes its place.
    if (latest !== undefined && !latest.complete && !connection.dropLastHeld()) {
      // An answer to it is under way: a second one would be read as a part of it.
      if (answering?.headersSent) socket.destroy();
      else refuseConnection(connection, parserError(error));
      return;
    }
    // A connection that never sent anything made no request.
    connection.lastTurn(() =>
      socket.bytesRead === 0
        ? refuseConnection(connection, parserError(error))
        : refuseHead(connection, brokenHead(error.rawPacket), parserError(error)),
    );
  }

  /** An exception in a handler ends the connection that it was for, and no other. */
  function guard(socket: Socket, error: unknown): void {
    env.unexpected(error, nameOf(socket));
    socket.destroy();
  }

  function onMessage(req: IncomingMessage, res: ServerResponse, expects: Expectation): void {
    try {
      onRequest(req, res, expects);
    } catch (error) {
      guard(req.socket, error);
    }
  }

  function guarded(socket: Duplex, action: (socket: Socket) => void): void {
    try {
      action(socket as Socket);
    } catch (error) {
      guard(socket as Socket, error);
    }
  }

  server.on("request", (req, res) => onMessage(req, res, "nothing"));
  server.on("checkContinue", (req, res) => onMessage(req, res, "continue"));
  server.on("checkExpectation", (req, res) => onMessage(req, res, "unknown"));
  server.on("upgrade", (req: IncomingMessage, duplex: Duplex, firstBytes: Buffer) =>
    guarded(duplex, (socket) =>
      onHandedOver(socket, (connection) =>
        isWebSocket(req) ? beginUpgrade(req, firstBytes, connection) : readAgain(req, firstBytes, connection),
      ),
    ),
  );
  server.on("connect", (req: IncomingMessage, duplex: Duplex) =>
    guarded(duplex, (socket) =>
      onHandedOver(socket, (connection) => refuseHead(connection, headOf(req), new GatewayError("method_not_allowed"))),
    ),
  );
  server.on("clientError", (error: ParserError, duplex: Duplex) =>
    guarded(duplex, (socket) => onClientError(error, socket)),
  );
  server.on("connection", (socket: Socket) => {
    if (seenBefore.has(socket)) return;
    connections += 1;
    socket.once("close", () => {
      connections -= 1;
    });
  });
  server.on("drop", () => {
    refused += 1;
    const nowMs = env.clock.monotonicMs();
    if (nowMs < sayRefusedMs) return;
    sayRefusedMs = nowMs + SAY_REFUSED_EVERY_MS;
    env.logger.warn("connections rejected: too many are open", { limit: env.limits.maxConnections, refused });
    refused = 0;
  });

  return new Promise((resolve, reject) => {
    server.once("error", reject);
    const address = { port: at.port, ...(at.address === undefined ? {} : { host: at.address }) };
    server.listen(inheritedFd === undefined ? address : { fd: inheritedFd }, () => {
      server.off("error", reject);
      server.on("error", (error) => env.logger.error("listener", { error: error.message }));
      resolve({
        port: (server.address() as AddressInfo).port,
        serve(next) {
          served = next;
        },
        setTls(tls) {
          if ("setSecureContext" in server)
            (server as unknown as { setSecureContext(options: object): void }).setSecureContext(tls);
        },
        active: () => ({ connections, requests }),
        drain(lingerMs = 0) {
          draining = true;
          if (lingerMs === 0) server.close();
          else {
            isLingering = true;
            // Node's own HTTP server would close them at once.
            NetServer.prototype.close.call(server);
            env.clock.after(lingerMs, () => {
              isLingering = false;
              if (requests === 0) resolveDrained();
            });
          }
          // They have no end of their own: their clients come back, to whoever serves then.
          for (const tunnel of tunnels) tunnel.goAway();
          if (requests === 0 && !isLingering) resolveDrained();
          return drained;
        },
        destroy() {
          idle.stop();
          server.close();
          for (const stream of streams) stream.finishStream();
          for (const tunnel of tunnels) tunnel.destroy();
          for (const socket of handedOver) socket.destroy();
          server.closeAllConnections();
        },
      });
    });
  });
}

/** What the parser says; the bytes are those that it was reading. */
type ParserError = Error & { readonly code?: string; readonly rawPacket?: Buffer };

function headOf({ method = "", url = "", httpVersion, rawHeaders }: IncomingMessage): RefusedHead {
  return { method, target: url, version: httpVersion, rawHeaders };
}

function bodyOf(req: IncomingMessage, head: Head): RequestBody {
  if (!head.hasBody) return NO_BODY;
  return { kind: "stream", stream: req, length: head.contentLength, taken: false };
}

function ignore(): void {
  // The close event that follows says what there is to say.
}

function nameOf({ remoteAddress = "", remotePort }: Socket): string {
  return `${unmapped(remoteAddress)}:${remotePort}`;
}

/** An IPv4 peer on a dual-stack socket shows up as ::ffff:1.2.3.4. */
function unmapped(address: string): string {
  return address.startsWith("::ffff:") ? address.slice(7) : address;
}

function parserError(error: ParserError): GatewayError {
  switch (error.code) {
    case "HPE_HEADER_OVERFLOW":
      return new GatewayError("too_many_headers");
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new GatewayError("request_timeout");
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return new GatewayError("body_too_large");
    default:
      return new GatewayError("bad_request");
  }
}
