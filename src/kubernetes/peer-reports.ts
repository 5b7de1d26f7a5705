/**
 * Reports the connected data planes of a controller replica, and the acknowledgments that it received, to the leader.
 * Replicas authenticate with a value derived from the private key that they share.
 */

import { createHmac, timingSafeEqual } from "node:crypto";
import { isIP } from "node:net";
import type { Clock, Timer } from "../base/clock.ts";
import { fieldsOf, listOf, textOf } from "../config/text/value-shapes.ts";
import { openHttpPool } from "../http/client/http-pool.ts";
import { EgressGuard } from "../http/egress-guard.ts";
import { HeaderList } from "../http/headers.ts";
import { hostToConnect } from "../http/host.ts";
import type { HttpPool } from "../http/http-client.ts";
import type { Logger } from "../record/log/logger.ts";

const REPORT_EVERY_MS = 5_000;
const FRESH_MS = 15_000;
const RETRY_MS = 1_000;
const TIMEOUT_MS = 3_000;
const ACK_KEPT_MS = 60_000;
const MAX_PEERS = 64;
/** Identifies a stream in its acknowledgments, which may arrive at another replica. */
export const STREAM_HEADER = "x-gateway-stream";
/** Contains `address:port` of the replica that has the stream, for its acknowledgments. */
export const REPLICA_HEADER = "x-gateway-replica";

export interface Ack {
  readonly version: string;
  readonly isServed: boolean;
  readonly problems: readonly string[];
  readonly refused: readonly { readonly policy: string; readonly message: string }[];
}

export interface Instance {
  readonly ack: Ack | undefined;
}

export interface ConnectedStream {
  readonly id: string;
  readonly gateway: string;
}

interface ReceivedAck {
  readonly stream: string;
  readonly sequence: number;
  readonly ack: Ack;
}

export interface ReplicaReport {
  readonly streams: readonly ConnectedStream[];
  readonly acks: readonly ReceivedAck[];
}

/** Combines the streams and acknowledgments of this replica with the reports of other replicas. */
export interface ReplicaReports {
  /** A load balancer may send an acknowledgment to a replica that does not have the stream. */
  acknowledged(stream: string, sequence: number, ack: Ack): void;
  received(replica: string, report: ReplicaReport): void;
  own(): ReplicaReport;
  instances(gateway: string): readonly Instance[];
}

export function createReplicaReports(clock: Clock, streams: () => Iterable<ConnectedStream>): ReplicaReports {
  const acks = new Map<string, ReceivedAck & { readonly atMs: number }>();
  const peers = new Map<string, { readonly report: ReplicaReport; readonly atMs: number }>();

  function prune(): void {
    const nowMs = clock.monotonicMs();
    for (const [name, { atMs }] of peers) if (nowMs - atMs > FRESH_MS) peers.delete(name);
    const connected = new Set(allStreams().map(({ id }) => id));
    for (const [id, { atMs }] of acks) if (!connected.has(id) && nowMs - atMs > ACK_KEPT_MS) acks.delete(id);
  }

  const allStreams = (): ConnectedStream[] => [
    ...streams(),
    ...[...peers.values()].flatMap(({ report }) => report.streams),
  ];

  function keep({ stream, sequence, ack }: ReceivedAck): void {
    if ((acks.get(stream)?.sequence ?? -1) <= sequence)
      acks.set(stream, { stream, sequence, ack, atMs: clock.monotonicMs() });
  }

  return {
    acknowledged(stream, sequence, ack) {
      prune();
      keep({ stream, sequence, ack });
    },
    received(replica, report) {
      prune();
      if (!peers.has(replica) && peers.size >= MAX_PEERS) return;
      peers.set(replica, { report, atMs: clock.monotonicMs() });
      // The acknowledgment of a stream is still valid when the replica that received it stops.
      for (const one of report.acks) keep(one);
    },
    own() {
      prune();
      return {
        streams: [...streams()].map(({ id, gateway }) => ({ id, gateway })),
        acks: [...acks.values()].map(({ stream, sequence, ack }) => ({ stream, sequence, ack })),
      };
    },
    instances(gateway) {
      prune();
      const ids = new Set(
        allStreams()
          .filter((stream) => stream.gateway === gateway)
          .map(({ id }) => id),
      );
      return [...ids].map((id) => ({ ack: acks.get(id)?.ack }));
    },
  };
}

export function readAck(value: unknown): Ack {
  const { version, isServed, problems, refused } = fieldsOf(value);
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

export function readReport(value: unknown): ReplicaReport {
  const { streams, acks } = fieldsOf(value);
  return {
    streams: listOf(streams)
      .map(fieldsOf)
      .map(({ id, gateway }) => ({ id: String(id), gateway: String(gateway) })),
    acks: listOf(acks)
      .map(fieldsOf)
      .map(({ stream, sequence, ack }) => ({
        stream: String(stream),
        sequence: Number(sequence) || 0,
        ack: readAck(ack),
      })),
  };
}

/** Only replicas have the private key, which is in a Secret of the controller's namespace. */
function peerToken(privateKey: string): string {
  return createHmac("sha256", privateKey).update("gateway-controller replica").digest("base64url");
}

export function isPeer(authorization: string | undefined, privateKey: string): boolean {
  const digest = (text: string): Buffer => createHmac("sha256", privateKey).update(text).digest();
  return timingSafeEqual(digest(authorization ?? ""), digest(`Bearer ${peerToken(privateKey)}`));
}

export interface PeerReporterOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly tls: { readonly cert: string; readonly key: string };
  /** The certificate of the replicas is for this host name. */
  readonly hostname: string;
  readonly identity: string;
  /** Undefined while this replica leads or no leader is known. */
  leaderAddress(): string | undefined;
  report(): ReplicaReport;
}

export interface PeerReporter {
  /** Sends a report now, or after the report that is being sent. */
  soon(): void;
  stop(): void;
}

export function createPeerReporter(options: PeerReporterOptions): PeerReporter {
  const { clock, logger, tls, hostname, identity } = options;
  let pool: HttpPool | undefined;
  let poolAddress: string | undefined;
  let isSending = false;
  let isDue = false;
  let isStopped = false;
  let failures = 0;
  let retry: Timer | undefined;

  function poolOf(address: string): HttpPool {
    if (pool && poolAddress === address) return pool;
    pool?.close();
    const url = new URL(`https://${address}`);
    const target = { protocol: "https" as const, host: hostToConnect(url), port: Number(url.port) };
    const named = isIP(hostname) === 0 ? { servername: hostname } : {};
    pool = openHttpPool(
      { ...target, egress: EgressGuard.for("configuration"), tls: { ca: tls.cert, ...named } },
      clock,
    );
    poolAddress = address;
    return pool;
  }

  function send(): void {
    const address = options.leaderAddress();
    if (isStopped || isSending || address === undefined) return;
    retry?.cancel();
    isSending = true;
    isDue = false;
    let isOver = false;
    let status = 0;
    const finish = (reason: string | undefined): void => {
      if (isOver) return;
      isOver = true;
      isSending = false;
      timer.cancel();
      failures = reason === undefined ? 0 : failures + 1;
      if (reason !== undefined && failures === 1)
        logger.warn("report to the leader failed; retrying", { leader: address, reason });
      if (isStopped) return;
      if (reason !== undefined) retry = clock.after(RETRY_MS, send);
      else if (isDue) send();
    };
    const timer = clock.after(TIMEOUT_MS, () => {
      call?.abort();
      finish("timeout");
    });
    let call: { abort(): void } | undefined;
    try {
      const body = Buffer.from(JSON.stringify(options.report()));
      const headers = HeaderList.of({
        host: address,
        authorization: `Bearer ${peerToken(tls.key)}`,
        "content-type": "application/json",
        "content-length": String(body.length),
      });
      call = poolOf(address).send(
        { method: "POST", path: `/v1/replicas/${identity}`, headers, body },
        {
          head(code) {
            status = code;
          },
          data: () => true,
          end: () => finish(status === 204 ? undefined : `status ${status}`),
          fail: (error) => finish(error.message),
        },
      );
    } catch (error) {
      finish((error as Error).message);
    }
  }

  const heartbeat = clock.every(REPORT_EVERY_MS, send);
  return {
    soon() {
      isDue = true;
      send();
    },
    stop() {
      isStopped = true;
      heartbeat.cancel();
      retry?.cancel();
      pool?.close();
    },
  };
}
