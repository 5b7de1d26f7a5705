/**
 * Serves the admin interface over HTTP. It has no authentication, so it listens on loopback by default and checks
 * Origin, Sec-Fetch-Site and, except on Unix sockets and public stats addresses, Host.
 */

import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, connect, Server as NetServer } from "node:net";
import { readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { asGatewayError } from "../../core/reply.ts";
import { BodyTooLarge, readAll } from "../../http/body.ts";
import { canonicalAddress, hostOf, isLoopbackHost, isOwnOrigin } from "../../http/host.ts";
import { headBytes, type RequestHead, readRequestHead } from "../../http/request-head.ts";
import type { Logger } from "../../record/log/logger.ts";
import type { AdminAddress } from "./address.ts";
import { type AdminEndpoint, type AdminResponse, type AdminSink, textResponse } from "./endpoint.ts";
import { ADMIN_PATHS } from "./paths.ts";

/** Node's parser has its own limit of the same size. */
const HEAD = peerInput("client/http1-head");
const QUERY = peerInput("admin-client/query");
const BODY = peerInput("admin-client/body");

const MAX_CONNECTIONS = 256;
const HEADERS_TIMEOUT_MS = 10_000;
const SECURITY_HEADERS = {
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
  "referrer-policy": "no-referrer",
};

export interface AdminServer {
  /** Undefined if the interface is off. */
  readonly url: string | undefined;
  readonly port: number | undefined;
  /**
   * Another process accepts the connections from now on. Requests are still answered, also those that arrive on open
   * connections. Event streams end, so that their clients connect to the other process.
   */
  leave(): void;
  close(): void;
}

/** Rejects with an error that has a system error code if the address cannot be bound. */
export async function openAdminServer(
  address: AdminAddress,
  endpoints: readonly AdminEndpoint[],
  logger: Logger,
  audience: "operators" | "scrapers" = "operators",
  inherited: (host: string) => number | undefined = () => undefined,
): Promise<AdminServer> {
  if (address.kind === "off")
    return { url: undefined, port: undefined, leave: () => undefined, close: () => undefined };
  // Scrapers may use any host name, except on loopback.
  const isOpen =
    audience === "scrapers" &&
    address.kind === "tcp" &&
    !address.hosts.every((host) => isLoopbackHost(canonicalAddress(host)));
  const checksHost = address.kind === "tcp" && !isOpen;
  const servers: Server[] = [];
  const streams = new Set<ServerResponse>();
  let hasLeft = false;
  const open = async (listen: (server: Server, done: () => void) => void): Promise<Server> => {
    const server = createServer(
      { headersTimeout: HEADERS_TIMEOUT_MS, connectionsCheckingInterval: 1_000, maxHeaderSize: 8 * 1024 },
      (req, res) => {
        if (hasLeft) res.shouldKeepAlive = false;
        handle(req, res, endpoints, checksHost, streams).catch((error) => {
          if (error instanceof BodyTooLarge && !res.headersSent) {
            // Discards the rest of the body, so that the client can read the response.
            req.resume();
            write(res, textResponse(413, `${error.message}\n`), true);
            return;
          }
          logger.error("admin endpoint failed", {
            path: req.url?.split("?", 1)[0],
            error: (error as Error).stack ?? String(error),
          });
          if (!res.headersSent) write(res, textResponse(500, "internal error\n"), true);
          else res.destroy();
        });
      },
    );
    server.maxConnections = MAX_CONNECTIONS;
    // Otherwise Node rejects the expectation before the head is read.
    server.on("checkExpectation", (req, res) => server.emit("request", req, res));
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      listen(server, () => {
        server.off("error", reject);
        server.on("error", (error) => logger.error("admin server", { error: error.message }));
        resolve();
      });
    });
    servers.push(server);
    return server;
  };
  const leave = (): void => {
    hasLeft = true;
    // Node's HTTP servers also close idle connections, on which the next request may be on its way.
    for (const server of servers) NetServer.prototype.close.call(server);
    for (const res of streams) res.destroy();
  };
  const close = (): void => {
    for (const server of servers) {
      server.close();
      server.closeAllConnections();
    }
  };

  if (address.kind === "unix") {
    await removeStaleSocket(address.path);
    await open((server, done) => server.listen(address.path, done));
    chmodSync(address.path, 0o600);
    return { url: `unix:${address.path}`, port: undefined, leave, close };
  }
  let { port } = address;
  try {
    for (const [i, host] of address.hosts.entries()) {
      try {
        const fd = inherited(host);
        const server = await open((one, done) =>
          fd === undefined ? one.listen(port, host, done) : one.listen({ fd }, done),
        );
        port = (server.address() as AddressInfo).port;
      } catch (error) {
        // Without IPv6, the IPv4 loopback address is enough.
        const code = (error as NodeJS.ErrnoException).code;
        if (i === 0 || (code !== "EADDRNOTAVAIL" && code !== "EAFNOSUPPORT")) throw error;
      }
    }
  } catch (error) {
    close();
    throw error;
  }
  const host = address.hosts[0] as string;
  return { url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`, port, leave, close };
}

async function handle(
  req: IncomingMessage,
  res: ServerResponse,
  endpoints: readonly AdminEndpoint[],
  checksHost: boolean,
  streams: Set<ServerResponse>,
): Promise<void> {
  let head: RequestHead;
  try {
    head = readHead(req);
  } catch (thrown) {
    const { status, message, headers } = asGatewayError(thrown);
    write(res, { ...textResponse(status, `${message}\n`), headers: { ...headers } }, true);
    return;
  }
  const { rawPath: pathname, query, host } = head;
  const rejection = rejectionReason({
    method: req.method ?? "",
    path: pathname,
    host,
    origin: req.headers.origin,
    fetchSite: req.headers["sec-fetch-site"] as string | undefined,
    fetchMode: req.headers["sec-fetch-mode"] as string | undefined,
    localAddress: checksHost ? (req.socket.localAddress ?? "") : undefined,
  });
  if (rejection !== undefined) {
    write(res, textResponse(403, `${rejection}\n`), true);
    return;
  }
  const endpoint = endpoints.find(
    ({ path, below }) => pathname === path || (below === true && pathname.startsWith(`${path}/`)),
  );
  if (!endpoint) {
    write(res, textResponse(404, "not found; the list of endpoints is at /\n"), true);
    return;
  }
  const method = req.method === "HEAD" ? "GET" : (req.method ?? "");
  const handler = method === "GET" ? endpoint.GET : method === "POST" ? endpoint.POST : undefined;
  if (!handler) {
    const allow = [endpoint.GET && "GET", endpoint.POST && "POST"].filter(Boolean).join(", ");
    write(res, { ...textResponse(405, `method not allowed; use ${allow}\n`), headers: { allow } }, true);
    return;
  }
  const left = new AbortController();
  res.once("close", () => {
    if (!res.writableFinished) left.abort();
  });
  const result = await handler({
    method: req.method ?? "",
    path: pathname,
    query: readForm(QUERY, query),
    body: () => readAll(req, endpoint.input ?? BODY),
    left: left.signal,
  });
  if ("stream" in result) {
    streams.add(res);
    res.once("close", () => streams.delete(res));
  }
  write(res, result, req.method !== "HEAD");
}

/** Node's parser has split the head. The rules for it are those of the listeners. */
function readHead({ method = "", url = "", httpVersion, rawHeaders, headers }: IncomingMessage): RequestHead {
  const pairs = rawHeaders.map((text, i) => (i % 2 === 0 ? text.toLowerCase() : text));
  const version = httpVersion === "1.0" ? "1.0" : "1.1";
  const bytes = headBytes(method, url, pairs);
  // Node itself answers `100-continue`.
  const expects = headers.expect === undefined || /^100-continue$/i.test(headers.expect) ? "nothing" : "unknown";
  return readRequestHead(HEAD, { method, target: url, version, pairs, bytes, expects, fault: undefined }, false, false);
}

function write(res: ServerResponse, result: AdminResponse, withBody: boolean): void {
  res.on("error", () => undefined);
  res.writeHead(result.status, { ...SECURITY_HEADERS, "content-type": result.type, ...result.headers });
  if (!withBody) res.end();
  else if ("stream" in result) result.stream(createSink(res));
  else res.end(result.body);
}

function createSink(res: ServerResponse): AdminSink {
  return {
    write: (text) => res.write(text),
    end: () => void res.end(),
    onClose(callback) {
      // The client may have disconnected while the handler ran.
      if (res.destroyed) queueMicrotask(callback);
      else res.on("close", callback);
    },
    bufferedBytes: () => res.writableLength,
  };
}

/** Removes the socket file of a crashed process. Throws if the socket is in use or the path is another kind of file. */
async function removeStaleSocket(path: string): Promise<void> {
  let isSocket: boolean;
  try {
    isSocket = lstatSync(path).isSocket();
  } catch {
    return;
  }
  if (!isSocket) throw Object.assign(new Error(`${path} exists and is not a socket`), { code: "EEXIST" });
  const alive = await new Promise<boolean>((resolve) => {
    const probe = connect(path);
    probe.once("connect", () => {
      probe.destroy();
      resolve(true);
    });
    probe.once("error", () => resolve(false));
  });
  if (alive) throw Object.assign(new Error(`${path} is in use by another process`), { code: "EADDRINUSE" });
  unlinkSync(path);
}

export interface GuardedRequest {
  readonly method: string;
  readonly path: string;
  readonly host: string | undefined;
  readonly origin: string | undefined;
  readonly fetchSite: string | undefined;
  readonly fetchMode: string | undefined;
  /** Undefined if the Host header is not checked, as on a Unix socket. */
  readonly localAddress: string | undefined;
}

export function rejectionReason(request: GuardedRequest): string | undefined {
  if (request.localAddress !== undefined) {
    const name = hostOf(request.host ?? "");
    if (!isLoopbackHost(name) && name !== canonicalAddress(request.localAddress))
      return "the Host header must be a loopback name or the address of the admin interface itself";
  }
  const isFromElsewhere =
    request.fetchSite !== undefined && request.fetchSite !== "none" && request.fetchSite !== "same-origin";
  if (isFromElsewhere && !opensPage(request)) return "requests from other sites are not allowed";
  if (request.origin !== undefined && !isOwnOrigin(request.origin, request.host ?? ""))
    return "requests from another origin are not allowed";
  return undefined;
}

/**
 * Allows navigation to the UI and the documentation from other sites, such as links and redirects of an identity
 * provider. The pages are static and contain no data of this process.
 */
function opensPage({ method, path, fetchMode }: GuardedRequest): boolean {
  const isBelow = (base: string): boolean => path === base || path.startsWith(`${base}/`);
  const isPage = isBelow(ADMIN_PATHS.docs) || (isBelow(ADMIN_PATHS.ui) && !path.startsWith(`${ADMIN_PATHS.ui}/api/`));
  return method === "GET" && fetchMode === "navigate" && isPage;
}
