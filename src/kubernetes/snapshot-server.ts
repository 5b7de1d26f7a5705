/**
 * Streams snapshots to data planes over TLS. Each data plane receives the complete snapshot of its own Gateway whenever
 * it changes, and acknowledges it. Only the leader serves data planes, because only the leader writes statuses. A data
 * plane authenticates with a ServiceAccount token for this controller, which the API server reviews.
 */

import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import { isIP } from "node:net";
import type { Clock } from "../base/clock.ts";
import type { Snapshot } from "../config/documents/snapshot.ts";
import { fieldsOf, listOf, textOf } from "../config/text/value-shapes.ts";
import { readAll } from "../http/body.ts";
import type { Logger } from "../observe/log/logger.ts";
import type { ApiClient } from "./api-client.ts";

const MAX_ACK_BYTES = 256 * 1024;
const MAX_STREAMS = 4096;
/** A stream whose reader is this far behind is closed. */
const MAX_BEHIND_BYTES = 64 * 1024 * 1024;
const HEARTBEAT_MS = 15_000;

export interface Ack {
  readonly version: string;
  readonly isServed: boolean;
  readonly problems: readonly string[];
  readonly refused: readonly { readonly policy: string; readonly message: string }[];
}

export interface Instance {
  readonly ack: Ack | undefined;
}

export interface SnapshotServer {
  readonly port: number;
  publish(snapshots: ReadonlyMap<string, Snapshot>): void;
  instances(gateway: string): readonly Instance[];
  close(): void;
}

export interface SnapshotServerOptions {
  readonly host: string;
  readonly port: number;
  readonly tls: { readonly cert: string; readonly key: string };
  readonly reviews: TokenReviews;
  readonly clock: Clock;
  readonly logger: Logger;
  isLeader(): boolean;
  /** Returns the user allowed to read the snapshot of a Gateway, or undefined if the Gateway does not exist. */
  accountOf(gateway: string): string | undefined;
  /** Called after a data plane connected, disconnected, or sent an acknowledgment. */
  changed(): void;
}

interface Stream {
  readonly gateway: string;
  readonly response: ServerResponse;
  sent: string;
  ack: Ack | undefined;
}

export async function openSnapshotServer(parts: SnapshotServerOptions): Promise<SnapshotServer> {
  const { logger } = parts;
  const streams = new Map<string, Stream>();
  let snapshots: ReadonlyMap<string, { readonly snapshot: Snapshot; readonly text: string }> = new Map();

  async function authenticate(request: IncomingMessage, gateway: string): Promise<number> {
    const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? "")?.[1];
    const account = parts.accountOf(gateway);
    if (token === undefined) return 401;
    const user = await parts.reviews.userOf(token);
    if (user === undefined) return 401;
    return account !== undefined && user === account ? 200 : 403;
  }

  function send(stream: Stream): void {
    const next = snapshots.get(stream.gateway);
    if (next === undefined || stream.sent === next.text) return;
    stream.sent = next.text;
    if (stream.response.writableLength > MAX_BEHIND_BYTES) stream.response.destroy();
    else stream.response.write(`event: snapshot\ndata: ${next.text}\n\n`);
  }

  async function handleRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, what, namespace, name, instance] =
      /^\/v1\/(snapshots|acks)\/([a-z0-9-]{1,63})\/([a-z0-9.-]{1,253})\/([A-Za-z0-9.-]{1,253})$/.exec(
        request.url ?? "",
      ) ?? [];
    if (what === undefined) return refuse(response, 404, "not found");
    if (!parts.isLeader()) return refuse(response, 503, "not the leader");
    const gateway = `${namespace}/${name}`;
    const key = `${gateway} ${instance}`;
    const status = await authenticate(request, gateway);
    if (status !== 200) return refuse(response, status, "not allowed");
    if (what === "acks" && request.method === "POST") {
      const ack = readAck(await readAll(request, MAX_ACK_BYTES));
      const stream = streams.get(key);
      if (stream) stream.ack = ack;
      response.writeHead(204).end();
      parts.changed();
      return undefined;
    }
    if (what !== "snapshots" || request.method !== "GET") return refuse(response, 405, "method not allowed");
    if (streams.size >= MAX_STREAMS) return refuse(response, 503, "too many data planes");
    // The data plane reconnected before its dead connection was detected.
    streams.get(key)?.response.destroy();
    const stream: Stream = { gateway, response, sent: "", ack: undefined };
    streams.set(key, stream);
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
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

  const server: Server = createServer({ ...parts.tls, minVersion: "TLSv1.3" }, (request, response) => {
    request.on("error", () => undefined);
    response.on("error", () => undefined);
    handleRequest(request, response).catch((error: Error) => {
      logger.warn("request from data plane failed", { reason: error.message });
      if (response.headersSent) response.destroy();
      else refuse(response, 503, "try again");
    });
  });
  server.on("tlsClientError", () => undefined);
  server.requestTimeout = 0;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(parts.port, parts.host === "" ? undefined : parts.host, resolve);
  });
  server.on("error", (error) => logger.error("snapshot server failed", { reason: error.message }));
  const heartbeat = parts.clock.every(HEARTBEAT_MS, () => {
    for (const { response } of streams.values()) response.write(":\n\n");
  });
  const address = server.address();

  return {
    port: typeof address === "object" && address ? address.port : parts.port,
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
    instances: (gateway) => [...streams.values()].filter((stream) => stream.gateway === gateway),
    close() {
      heartbeat.cancel();
      for (const { response } of streams.values()) response.destroy();
      server.close();
      server.closeAllConnections();
    },
  };
}

function refuse(response: ServerResponse, status: number, text: string): undefined {
  response.writeHead(status, { "content-type": "text/plain" }).end(`${text}\n`);
  return undefined;
}

function readAck(body: Buffer): Ack {
  const { version, isServed, problems, refused } = fieldsOf(JSON.parse(body.toString()));
  return {
    version: String(version),
    isServed: isServed === true,
    problems: listOf(problems).slice(0, 20).map(String),
    refused: listOf(refused)
      .slice(0, 100)
      .map(fieldsOf)
      .map((one) => ({ policy: textOf(one.policy) ?? "", message: textOf(one.message) ?? "" })),
  };
}

/** Accepts `[address]:port`, `address:port`, and `:port`. */
export function listenAddress(text: string): { readonly host: string; readonly port: number } | undefined {
  const found = /^(?:\[(?<six>[^\]]+)\]|(?<four>[^:]*)):(?<port>\d{1,5})$/.exec(text)?.groups;
  const host = found?.six ?? found?.four ?? "";
  if (found === undefined || Number(found.port) > 65_535 || (host !== "" && isIP(host) === 0)) return undefined;
  return { host, port: Number(found.port) };
}

/** Tokens for another audience, such as the API server, are rejected. */
export const TOKEN_AUDIENCE = "gateway-controller";
const FRESH_MS = 60_000;
const STALE_MS = 600_000;
const MAX_KNOWN = 10_000;

export interface TokenReviews {
  /**
   * Resolves to undefined if the token is invalid. Rejects if the API server is unavailable and no recent result
   * exists.
   */
  userOf(token: string): Promise<string | undefined>;
}

export function createTokenReviews(client: ApiClient, clock: Clock): TokenReviews {
  const known = new Map<string, { readonly user: string | undefined; readonly atMs: number }>();
  return {
    async userOf(token) {
      const key = createHash("sha256").update(token).digest("base64");
      const before = known.get(key);
      const age = before === undefined ? Number.POSITIVE_INFINITY : clock.monotonicMs() - before.atMs;
      if (before && age < FRESH_MS) return before.user;
      try {
        const body = {
          apiVersion: "authentication.k8s.io/v1",
          kind: "TokenReview",
          spec: { token, audiences: [TOKEN_AUDIENCE] },
        };
        const path = "/apis/authentication.k8s.io/v1/tokenreviews";
        const status = fieldsOf(fieldsOf(await client.request({ method: "POST", path, body })).status);
        const isGood = status.authenticated === true && listOf(status.audiences).includes(TOKEN_AUDIENCE);
        const { username } = fieldsOf(status.user);
        const user = isGood && typeof username === "string" ? username : undefined;
        if (known.size >= MAX_KNOWN) known.clear();
        known.set(key, { user, atMs: clock.monotonicMs() });
        return user;
      } catch (error) {
        if (before && age < STALE_MS) return before.user;
        throw error;
      }
    },
  };
}
