/**
 * Streams snapshots to data planes over TLS. Each data plane receives the complete snapshot of its own Gateway
 * whenever it changes, and acknowledges it. A data plane authenticates with a ServiceAccount token, which the API
 * server reviews.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import { isIP } from "node:net";
import type { Clock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import type { Snapshot } from "../config/documents/snapshot.ts";
import { fieldsOf } from "../config/text/value-shapes.ts";
import { readAll } from "../http/body.ts";
import { readJson } from "../json/read-json.ts";
import { createConnectionLimits } from "../pipeline/listen/listener.ts";
import type { Logger } from "../record/log/logger.ts";
import {
  type ConnectedStream,
  createReplicaReports,
  type Instance,
  isPeer,
  REPLICA_HEADER,
  type ReplicaReport,
  readAck,
  readReport,
  STREAM_HEADER,
} from "./peer-reports.ts";
import { type TokenReviews, TooManyReviews } from "./token-reviews.ts";

const ACKNOWLEDGMENT = peerInput("data-plane/acknowledgment");
const REPORT = peerInput("replica/report");

const MAX_STREAMS = 4096;
/** The data planes of one Gateway cannot use up the streams of all. */
const MAX_GATEWAY_STREAMS = 2048;
/** Any pod can connect. Data planes have their own addresses, except in the network of their node. */
const MAX_ADDRESS_CONNECTIONS = 512;
/** Requests are small. Responses have no time limit. */
const TIMES = { handshakeTimeout: 10_000, headersTimeout: 10_000, requestTimeout: 60_000 };
const MAX_BEHIND_BYTES = 64 * 1024 * 1024;
const HEARTBEAT_MS = 5_000;
/** The connection is closed, so that a load balancer can select another replica for the next request. */
const CLOSE = { connection: "close" };

export interface SnapshotServer {
  readonly port: number;
  publish(snapshots: ReadonlyMap<string, Snapshot>): void;
  /** Returns the connected data planes of a Gateway, including those of other replicas. */
  instances(gateway: string): readonly Instance[];
  report(): ReplicaReport;
  close(): void;
}

export interface SnapshotServerOptions {
  readonly host: string;
  readonly port: number;
  /** Data planes and other replicas reach this replica at this address. */
  readonly replicaHost: string;
  readonly tls: { readonly cert: string; readonly key: string };
  readonly reviews: TokenReviews;
  readonly clock: Clock;
  readonly logger: Logger;
  isReady(): boolean;
  /** False while the API server does not respond. Another replica may then have newer snapshots. */
  isConnected(): boolean;
  /** Returns the user that may read the snapshot of a Gateway, or undefined if the Gateway does not exist. */
  accountOf(gateway: string): string | undefined;
  /** Called when a data plane connects to this replica, disconnects, or sends it an acknowledgment. */
  changed(): void;
  /** Called when another replica has reported its data planes. */
  reported(): void;
}

interface Stream extends ConnectedStream {
  readonly response: ServerResponse;
  sent: string;
}

export async function openSnapshotServer(parts: SnapshotServerOptions): Promise<SnapshotServer> {
  const { logger } = parts;
  const streams = new Map<string, Stream>();
  const reports = createReplicaReports(parts.clock, () => streams.values());
  let snapshots: ReadonlyMap<string, { readonly snapshot: Snapshot; readonly text: string }> = new Map();

  async function authenticate(request: IncomingMessage, gateway: string): Promise<number> {
    const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? "")?.[1];
    const account = parts.accountOf(gateway);
    if (token === undefined) return 401;
    try {
      const user = await parts.reviews.userOf(token, request.socket.remoteAddress ?? "");
      if (user === undefined) return 401;
      return account !== undefined && user === account ? 200 : 403;
    } catch (error) {
      // The rejection is not logged, because any pod can cause it.
      if (error instanceof TooManyReviews) return 429;
      throw error;
    }
  }

  function send(stream: Stream): void {
    const next = snapshots.get(stream.gateway);
    if (next === undefined || stream.sent === next.text) return;
    stream.sent = next.text;
    if (stream.response.writableLength > MAX_BEHIND_BYTES) stream.response.destroy();
    else stream.response.write(`event: snapshot\ndata: ${next.text}\n\n`);
  }

  async function handleRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const replica = /^\/v1\/replicas\/([A-Za-z0-9.-]{1,253})$/.exec(request.url ?? "")?.[1];
    if (replica !== undefined) return handleReport(replica, request, response);
    const [, what, namespace, name, instance] =
      /^\/v1\/(snapshots|acks)\/([a-z0-9-]{1,63})\/([a-z0-9.-]{1,253})\/([A-Za-z0-9.-]{1,253})$/.exec(
        request.url ?? "",
      ) ?? [];
    if (what === undefined) return refuse(response, 404, "not found");
    if (!parts.isReady()) return refuse(response, 503, "the cluster was not read yet");
    const gateway = `${namespace}/${name}`;
    const key = `${gateway} ${instance}`;
    const status = await authenticate(request, gateway);
    if (status !== 200) return refuse(response, status, "not allowed");
    // Data planes of version 0.1 send no stream ID.
    const sentId = request.headers[STREAM_HEADER];
    const id = `${key} ${typeof sentId === "string" && /^[\w-]{1,64}$/.test(sentId) ? sentId : ""}`;
    if (what === "acks" && request.method === "POST") {
      const fields = fieldsOf(readJson(ACKNOWLEDGMENT, await readAll(request, ACKNOWLEDGMENT)));
      reports.acknowledged(id, Number(fields.sequence) || 0, readAck(fields));
      response.writeHead(204, CLOSE).end();
      parts.changed();
      return undefined;
    }
    if (what !== "snapshots" || request.method !== "GET") return refuse(response, 405, "method not allowed");
    const own = [...streams.values()].filter((stream) => stream.gateway === gateway).length;
    if (!streams.has(key) && (streams.size >= MAX_STREAMS || own >= MAX_GATEWAY_STREAMS))
      return refuse(response, 503, "too many data planes");
    // A reconnected data plane replaces its old stream.
    streams.get(key)?.response.destroy();
    const stream: Stream = { id, gateway, response, sent: "" };
    streams.set(key, stream);
    response.writeHead(200, {
      "content-type": "text/event-stream",
      "cache-control": "no-store",
      [REPLICA_HEADER]: addressOfReplica(),
      ...CLOSE,
    });
    response.write(": connected\n\n");
    response.on("close", () => {
      if (streams.get(key) === stream) streams.delete(key);
      parts.changed();
    });
    logger.info("data plane connected", { gateway, instance });
    send(stream);
    parts.changed();
    return undefined;
  }

  async function handleReport(replica: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!isPeer(request.headers.authorization, parts.tls.key)) return refuse(response, 401, "not allowed");
    if (request.method !== "POST") return refuse(response, 405, "method not allowed");
    reports.received(replica, readReport(readJson(REPORT, await readAll(request, REPORT))));
    response.writeHead(204).end();
    parts.reported();
    return undefined;
  }

  const server: Server = createServer({ ...parts.tls, ...TIMES, minVersion: "TLSv1.3" }, (request, response) => {
    request.on("error", () => undefined);
    response.on("error", () => undefined);
    handleRequest(request, response).catch((error: Error) => {
      logger.warn("request from data plane failed", { reason: error.message });
      if (response.headersSent) response.destroy();
      else refuse(response, 503, "try again");
    });
  });
  server.on("tlsClientError", () => undefined);
  const limits = createConnectionLimits({
    clock: parts.clock,
    logger,
    isTrustedPeer: () => false,
    limits: { maxConnectionsPerAddress: MAX_ADDRESS_CONNECTIONS },
  });
  server.on("connection", limits.admit);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(parts.port, parts.host === "" ? undefined : parts.host, resolve);
  });
  server.on("error", (error) => logger.error("snapshot server failed", { reason: error.message }));
  const heartbeat = parts.clock.every(HEARTBEAT_MS, () => {
    // Without the API server, the streams end, so that data planes reconnect to a replica that still receives changes.
    for (const { response } of streams.values())
      if (parts.isConnected()) response.write(":\n\n");
      else response.end();
  });
  const boundPort = (): number => {
    const address = server.address();
    return typeof address === "object" && address ? address.port : parts.port;
  };
  const addressOfReplica = (): string => replicaAddress(parts.replicaHost, boundPort());

  return {
    port: boundPort(),
    publish(next) {
      snapshots = new Map(
        [...next].map(([gateway, snapshot]) => {
          const before = snapshots.get(gateway);
          const isSame =
            before?.snapshot.version === snapshot.version &&
            JSON.stringify(before.snapshot.endpoints) === JSON.stringify(snapshot.endpoints);
          return [gateway, isSame && before ? before : { snapshot, text: JSON.stringify(snapshot) }];
        }),
      );
      for (const stream of streams.values()) send(stream);
    },
    instances: reports.instances,
    report: reports.own,
    close() {
      heartbeat.cancel();
      for (const { response } of streams.values()) response.destroy();
      server.close();
      server.closeAllConnections();
    },
  };
}

export function replicaAddress(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

function refuse(response: ServerResponse, status: number, text: string): undefined {
  response.writeHead(status, { "content-type": "text/plain", ...CLOSE }).end(`${text}\n`);
  return undefined;
}

/** Accepts `[address]:port`, `address:port`, or `:port`. */
export function listenAddress(text: string): { readonly host: string; readonly port: number } | undefined {
  const found = /^(?:\[(?<six>[^\]]+)\]|(?<four>[^:]*)):(?<port>\d{1,5})$/.exec(text)?.groups;
  const host = found?.six ?? found?.four ?? "";
  if (found === undefined || Number(found.port) > 65_535 || (host !== "" && isIP(host) === 0)) return undefined;
  return { host, port: Number(found.port) };
}
