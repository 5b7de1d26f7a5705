/**
 * Follows the controller from a data plane. It receives snapshots over an event stream, acknowledges them, and saves
 * the last served snapshot to disk, so that the data plane can start while the controller is unavailable.
 */

import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { isIP } from "node:net";
import { join } from "node:path";
import type { Clock, Timer } from "../base/clock.ts";
import { replaceFile } from "../base/files.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { runInSlices, SLICED_BYTES } from "../base/sliced-work.ts";
import { urlLabel } from "../base/url-label.ts";
import { createCluster, keyOf } from "../config/documents/cluster.ts";
import { clusterDocument, parseSnapshot, parseSnapshotInSteps, type Snapshot } from "../config/documents/snapshot.ts";
import type { ClusterInput } from "../config/prepare.ts";
import type { EndpointDirectory } from "../core/policy.ts";
import { openHttpPool } from "../http/client/http-pool.ts";
import { EgressGuard } from "../http/egress-guard.ts";
import { HeaderList } from "../http/headers.ts";
import { hostToConnect } from "../http/host.ts";
import type { HttpPool } from "../http/http-client.ts";
import { createSseParser } from "../http/sse.ts";
import type { Logger } from "../record/log/logger.ts";
import { REPLICA_HEADER, STREAM_HEADER } from "./peer-reports.ts";

const SNAPSHOT_STREAM = peerInput("controller/snapshot-stream");

const IDLE_MS = 15_000;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 2_000;
/** The saved snapshot may be older, so a start waits this long for the controller before it uses the file. */
const DISK_AFTER_MS = 5_000;
/** Changed endpoints are saved at most this often, because writing blocks requests. */
const SAVE_MS = 1_000;
const ACK_RETRY_MS = 1_000;
const ACK_TIMEOUT_MS = 5_000;

export interface FollowOptions {
  readonly url: string;
  readonly certificate: string | undefined;
  /** The format is `namespace/name`. */
  readonly gateway: string;
  readonly instance: string;
  readonly tokenFile: string;
  readonly stateFolder: string | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
}

export interface Following {
  readonly source: SnapshotSource;
  readonly first: Promise<void>;
  stop(): void;
}

export function followController(options: FollowOptions): Following {
  const { clock, logger, gateway } = options;
  const url = new URL(options.url);
  const port = url.port === "" ? 443 : Number(url.port);
  const tls = options.certificate === undefined ? {} : { ca: options.certificate };
  const host = hostToConnect(url);
  const pool = openHttpPool({ protocol: "https", host, port, tls, egress: EgressGuard.for("configuration") }, clock);
  const file = options.stateFolder === undefined ? undefined : join(options.stateFolder, "snapshot.json");
  let isStopped = false;
  let failures = 0;
  let timer: Timer | undefined;
  let latestAck: Buffer | undefined;
  let ackRetry: Timer | undefined;
  let nextSave: Timer | undefined;
  let ackSequence = 0;
  /**
   * Changes with each connection, so that the controller does not attribute an old acknowledgment to a new connection.
   */
  let streamId = "";
  /**
   * Connects to the replica that has the stream. Another one might stop before it reports the acknowledgment to the
   * leader.
   */
  let replica: HttpPool | undefined;
  let abort = (): void => undefined;
  let arrived = (): void => undefined;
  const first = new Promise<void>((resolve) => {
    arrived = resolve;
  });

  let lastApplied: { readonly version: string; readonly outcome: Applied } | undefined;
  const source = createSnapshotSource((snapshot, outcome) => {
    lastApplied = { version: snapshot.version, outcome };
    if (outcome.isServed) save(snapshot);
    acknowledge(snapshot, outcome);
  });

  function save(snapshot: Snapshot): void {
    nextSave?.cancel();
    nextSave = undefined;
    if (file === undefined) return;
    try {
      mkdirSync(options.stateFolder ?? ".", { recursive: true, mode: 0o700 });
      // The snapshot contains secrets, so the file gets its mode before its content.
      writeFileSync(file, "", { flag: "a", mode: 0o600 });
      replaceFile(file, JSON.stringify(snapshot));
    } catch (error) {
      logger.warn("snapshot could not be saved", { file, reason: (error as Error).message });
    }
  }

  /** Saves the endpoints of a snapshot whose documents are already served. */
  function saveSoon(): void {
    nextSave ??= clock.after(SAVE_MS, () => {
      const snapshot = source.snapshot();
      nextSave = undefined;
      if (snapshot !== undefined && lastApplied?.version === snapshot.version && lastApplied.outcome.isServed)
        save(snapshot);
    });
  }

  function headersOf(): HeaderList {
    // The kubelet renews the token in place, so it is read for each request.
    const token = readFileSync(options.tokenFile, "utf8").trim();
    return HeaderList.of({
      host: url.host,
      authorization: `Bearer ${token}`,
      accept: "text/event-stream",
      [STREAM_HEADER]: streamId,
    });
  }

  function useReplica(address: string | undefined): void {
    replica?.close();
    replica = undefined;
    const [, six, four, number] = /^(?:\[([0-9a-f:.]+)\]|([0-9.]+)):(\d{1,5})$/i.exec(address ?? "") ?? [];
    const target = six ?? four;
    if (target === undefined || isIP(target) === 0) return;
    const named = isIP(host) === 0 ? { servername: host } : {};
    replica = openHttpPool(
      {
        protocol: "https",
        egress: EgressGuard.for("configuration"),
        host: target,
        port: Number(number),
        tls: { ...tls, ...named },
      },
      clock,
    );
  }

  /** The acknowledgment is retried until the controller accepts it or a newer one replaces it. */
  function acknowledge({ version }: Snapshot, { isServed, problems, failures: failed }: Applied): void {
    const refused = failed.map(({ document, message }) => ({ policy: documentKey(document), message }));
    ackSequence += 1;
    latestAck = Buffer.from(JSON.stringify({ version, isServed, problems, refused, sequence: ackSequence }));
    sendAck(latestAck);
  }

  function sendAck(body: Buffer): void {
    ackRetry?.cancel();
    let isOver = false;
    const finish = (): boolean => {
      const isFirst = !isOver;
      isOver = true;
      timeout.cancel();
      return isFirst;
    };
    const direct = replica;
    const fail = (reason: string): void => {
      if (!finish()) return;
      logger.debug("acknowledgment failed; retrying", { reason });
      // The replica may be out of reach except through its load balancer.
      if (direct !== undefined && direct === replica) useReplica(undefined);
      if (!isStopped && latestAck === body) ackRetry = clock.after(ACK_RETRY_MS, () => sendAck(body));
    };
    let abortAck = (): void => undefined;
    const timeout = clock.after(ACK_TIMEOUT_MS, () => {
      fail("timeout");
      abortAck();
    });
    try {
      const headers = headersOf();
      headers.set("content-length", String(body.length));
      let status = 0;
      const call = (direct ?? pool).send(
        { method: "POST", path: `/v1/acks/${gateway}/${options.instance}`, headers, body },
        {
          head(code) {
            status = code;
          },
          data: () => true,
          end: () => (status < 300 ? void finish() : fail(`status ${status}`)),
          fail: (error) => fail(error.message),
        },
      );
      abortAck = () => call.abort();
    } catch (error) {
      fail((error as Error).message);
    }
  }

  function take(snapshot: Snapshot): void {
    if (snapshot.gateway !== gateway) throw new Error(`the snapshot is for ${snapshot.gateway}`);
    failures = 0;
    const before = source.snapshot();
    const isKnown = before?.version === snapshot.version;
    source.take(snapshot);
    if (isKnown && JSON.stringify(before.endpoints) !== JSON.stringify(snapshot.endpoints)) saveSoon();
    // Each new stream starts with the current snapshot and needs its own acknowledgment, even if that version is
    // already applied.
    if (isKnown && lastApplied?.version === snapshot.version) acknowledge(snapshot, lastApplied.outcome);
    arrived();
  }

  function open(): void {
    if (isStopped) return;
    let isOver = false;
    streamId = randomUUID();
    const end = (reason: string): void => {
      if (isOver) return;
      isOver = true;
      idle.cancel();
      abort();
      reconnect(reason);
    };
    const idleTimer = (): Timer => clock.after(IDLE_MS, () => end("timeout: no data"));
    let idle = idleTimer();
    let status = 0;
    /** The newest snapshot that arrived while a large one was being parsed. It replaces the others. */
    let newest: string | undefined;
    let isParsing = false;
    const receive = (text: string): void => {
      if (isParsing) newest = text;
      else if (text.length <= SLICED_BYTES) take(parseSnapshot(text));
      else {
        isParsing = true;
        runInSlices(parseSnapshotInSteps(text), () => isOver)
          .then((snapshot) => {
            isParsing = false;
            take(snapshot);
            const next = newest;
            newest = undefined;
            if (next !== undefined) receive(next);
          })
          .catch((error: Error) => end(error.message));
      }
    };
    const parser = createSseParser(SNAPSHOT_STREAM, ({ event, data }) => {
      if (event === "snapshot" && !isOver) receive(data);
    });
    try {
      const call = pool.send(
        { method: "GET", path: `/v1/snapshots/${gateway}/${options.instance}`, headers: headersOf() },
        {
          head(code, headers) {
            status = code;
            if (!isOver) useReplica(code === 200 ? headers.get(REPLICA_HEADER) : undefined);
          },
          data(chunk) {
            idle.cancel();
            idle = idleTimer();
            try {
              if (status === 200) parser.push(chunk);
            } catch (error) {
              end((error as Error).message);
            }
            return true;
          },
          end: () => end(status === 200 ? "stream ended" : `status ${status}`),
          fail: (error) => end(error.message),
        },
      );
      abort = () => call.abort();
    } catch (error) {
      end((error as Error).message);
    }
  }

  function reconnect(reason: string): void {
    if (isStopped) return;
    failures += 1;
    if (failures === 1 || failures % 30 === 0)
      logger.warn("controller unavailable; reconnecting", { url: urlLabel(options.url), reason });
    const pause = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(failures, 10));
    timer = clock.after(pause * (0.5 + 0.5 * options.random()), open);
  }

  const disk = clock.after(DISK_AFTER_MS, () => {
    if (source.snapshot() !== undefined || file === undefined) return;
    try {
      const snapshot = parseSnapshot(readFileSync(file, "utf8"));
      if (snapshot.gateway !== gateway) return;
      logger.warn("controller unavailable; serving the saved snapshot", { version: snapshot.version });
      source.take(snapshot);
      arrived();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT")
        logger.warn("saved snapshot cannot be used", { file, reason: (error as Error).message });
    }
  });
  open();
  return {
    source,
    first,
    stop() {
      isStopped = true;
      timer?.cancel();
      ackRetry?.cancel();
      nextSave?.cancel();
      disk.cancel();
      abort();
      replica?.close();
      pool.close();
    },
  };
}

export interface Applied {
  readonly isServed: boolean;
  readonly problems: readonly string[];
  readonly failures: readonly { readonly document: unknown; readonly message: string }[];
}

export interface ClusterSource {
  readonly endpoints: EndpointDirectory;
  /** Returns the documents to load, and the version to pass to `applied`. */
  current(): { readonly input: ClusterInput; readonly version: string } | undefined;
  onChange(callback: () => void): void;
  applied(version: string, outcome: Applied): void;
}

export interface SnapshotSource extends ClusterSource {
  take(snapshot: Snapshot): void;
  snapshot(): Snapshot | undefined;
}

export function createSnapshotSource(onApplied: (snapshot: Snapshot, outcome: Applied) => void): SnapshotSource {
  const lists = new Map<string, readonly string[]>();
  let latest: Snapshot | undefined;
  let current: { input: ClusterInput; version: string } | undefined;
  let changed = (): void => undefined;

  function takeEndpoints({ endpoints }: Snapshot): void {
    for (const [name, addresses] of Object.entries(endpoints)) {
      const before = lists.get(name);
      // Keeps the object of an unchanged list, because backends compare lists by identity.
      if (before === undefined || before.join() !== addresses.join()) lists.set(name, addresses);
    }
    for (const name of lists.keys()) if (!Object.hasOwn(endpoints, name)) lists.delete(name);
  }

  return {
    endpoints: { addresses: (service) => lists.get(service) ?? [] },
    current: () => current,
    onChange(callback) {
      changed = callback;
    },
    applied(version, outcome) {
      if (latest?.version === version) onApplied(latest, outcome);
    },
    snapshot: () => latest,
    take(snapshot) {
      takeEndpoints(snapshot);
      const isNew = latest?.version !== snapshot.version;
      latest = snapshot;
      if (!isNew) return;
      const documents = snapshot.documents.map(clusterDocument);
      current = { input: { documents, cluster: createCluster(snapshot.documents) }, version: snapshot.version };
      changed();
    },
  };
}

export function documentKey(document: unknown): string {
  const { metadata } = (document ?? {}) as { metadata?: { namespace?: string; name?: string } };
  return keyOf(metadata?.namespace ?? "", metadata?.name ?? "");
}
