/**
 * A data plane follows its controller: one stream of snapshots, opened again whenever it ends, and an answer to each.
 * The last snapshot that was served is kept on disk: a data plane that starts while the controller is away serves it.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock, Timer } from "../base/clock.ts";
import { replaceFile } from "../base/replace-file.ts";
import { urlLabel } from "../base/url-label.ts";
import { createCluster, keyOf } from "../config/documents/cluster.ts";
import { clusterDocument, parseSnapshot, type Snapshot } from "../config/documents/snapshot.ts";
import type { ClusterInput } from "../config/prepare.ts";
import type { EndpointDirectory } from "../core/policy.ts";
import { openHttpPool } from "../http/client/http-pool.ts";
import { HeaderList } from "../http/headers.ts";
import { createSseParser } from "../http/sse.ts";
import type { Logger } from "../observe/log/logger.ts";

const MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024;
/** The controller sends something every 15 s. */
const SILENT_MS = 45_000;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 2_000;
/** How long a start waits for the controller before it takes what is on disk, which may be older. */
const DISK_AFTER_MS = 5_000;
const ANSWER_AGAIN_MS = 1_000;

export interface FollowOptions {
  readonly url: string;
  readonly certificate: string | undefined;
  /** `namespace/name`. */
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
  /** Resolves when there is something to serve. */
  readonly first: Promise<void>;
  stop(): void;
}

export function followController(options: FollowOptions): Following {
  const { clock, logger, gateway } = options;
  const url = new URL(options.url);
  const port = url.port === "" ? 443 : Number(url.port);
  const tls = options.certificate === undefined ? {} : { ca: options.certificate };
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const pool = openHttpPool({ protocol: "https", host, port, tls }, clock);
  const file = options.stateFolder === undefined ? undefined : join(options.stateFolder, "snapshot.json");
  let isStopped = false;
  let failures = 0;
  let timer: Timer | undefined;
  /** What the controller is told last. */
  let answer: Buffer | undefined;
  let answerAgain: Timer | undefined;
  let abort = (): void => undefined;
  let arrived = (): void => undefined;
  const first = new Promise<void>((resolve) => {
    arrived = resolve;
  });

  const source = createSnapshotSource((snapshot, outcome) => {
    if (outcome.isServed) keep(snapshot);
    acknowledge(snapshot, outcome);
  });

  function keep(snapshot: Snapshot): void {
    if (file === undefined) return;
    try {
      mkdirSync(options.stateFolder ?? ".", { recursive: true, mode: 0o700 });
      // Secrets are in it: the file is its owner's before anything stands in it.
      writeFileSync(file, "", { flag: "a", mode: 0o600 });
      replaceFile(file, JSON.stringify(snapshot));
    } catch (error) {
      logger.warn("the snapshot could not be kept", { file, reason: (error as Error).message });
    }
  }

  function headersOf(): HeaderList {
    // Read each time: the token is renewed in place.
    const token = readFileSync(options.tokenFile, "utf8").trim();
    return HeaderList.of({ host: url.host, authorization: `Bearer ${token}`, accept: "text/event-stream" });
  }

  /** Told until the controller has heard it: a Gateway whose data plane serves is Programmed only then. */
  function acknowledge({ version }: Snapshot, { isServed, problems, failures: failed }: Applied): void {
    const refused = failed.map(({ document, message }) => ({ policy: documentKey(document), message }));
    answer = Buffer.from(JSON.stringify({ version, isServed, problems, refused }));
    tell(answer);
  }

  function tell(body: Buffer): void {
    answerAgain?.cancel();
    const fail = (reason: string): void => {
      logger.debug("the controller did not hear the answer", { reason });
      // A newer one is on its way otherwise.
      if (!isStopped && answer === body) answerAgain = clock.after(ANSWER_AGAIN_MS, () => tell(body));
    };
    try {
      const headers = headersOf();
      headers.set("content-length", String(body.length));
      let status = 0;
      pool.send(
        { method: "POST", path: `/v1/acks/${gateway}/${options.instance}`, headers, body },
        {
          head(code) {
            status = code;
          },
          data: () => true,
          end: () => (status < 300 ? undefined : fail(`status ${status}`)),
          error: (error) => fail(error.message),
        },
      );
    } catch (error) {
      fail((error as Error).message);
    }
  }

  function take(text: string): void {
    const snapshot = parseSnapshot(text);
    if (snapshot.gateway !== gateway) throw new Error(`a snapshot of ${snapshot.gateway}`);
    failures = 0;
    const isKnown = source.snapshot()?.version === snapshot.version;
    source.take(snapshot);
    // A controller that was restarted asks again; what is served was served before.
    if (isKnown && served?.version === snapshot.version) acknowledge(snapshot, served.outcome);
    arrived();
  }
  let served: { version: string; outcome: Applied } | undefined;
  const applied = source.applied.bind(source);
  source.applied = (version, outcome) => {
    served = { version, outcome };
    applied(version, outcome);
  };

  function open(): void {
    if (isStopped) return;
    let isOver = false;
    const end = (reason: string): void => {
      if (isOver) return;
      isOver = true;
      idle.cancel();
      abort();
      again(reason);
    };
    const silent = (): Timer => clock.after(SILENT_MS, () => end("silence"));
    let idle = silent();
    let status = 0;
    const parser = createSseParser(({ event, data }) => {
      if (event === "snapshot" && !isOver) take(data);
    }, MAX_SNAPSHOT_BYTES);
    try {
      const call = pool.send(
        { method: "GET", path: `/v1/snapshots/${gateway}/${options.instance}`, headers: headersOf() },
        {
          head(code) {
            status = code;
          },
          data(chunk) {
            idle.cancel();
            idle = silent();
            try {
              if (status === 200) parser.push(chunk);
            } catch (error) {
              end((error as Error).message);
            }
            return true;
          },
          end: () => end(status === 200 ? "the controller ended the stream" : `the controller answered ${status}`),
          error: (error) => end(error.message),
        },
      );
      abort = () => call.abort();
    } catch (error) {
      end((error as Error).message);
    }
  }

  function again(reason: string): void {
    if (isStopped) return;
    failures += 1;
    if (failures === 1 || failures % 30 === 0)
      logger.warn("the controller is away", { url: urlLabel(options.url), reason });
    const pause = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(failures, 10));
    timer = clock.after(pause * (0.5 + 0.5 * options.random()), open);
  }

  const disk = clock.after(DISK_AFTER_MS, () => {
    if (source.snapshot() !== undefined || file === undefined) return;
    try {
      const snapshot = parseSnapshot(readFileSync(file, "utf8"));
      if (snapshot.gateway !== gateway) return;
      logger.warn("the controller is away: the last good snapshot is served", { version: snapshot.version });
      source.take(snapshot);
      arrived();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT")
        logger.warn("the kept snapshot cannot be used", { file, reason: (error as Error).message });
    }
  });
  open();
  return {
    source,
    first,
    stop() {
      isStopped = true;
      timer?.cancel();
      answerAgain?.cancel();
      disk.cancel();
      abort();
      pool.close();
    },
  };
}

export interface Applied {
  readonly isServed: boolean;
  readonly problems: readonly string[];
  /** Documents that could not be compiled, as they are in the snapshot. */
  readonly failures: readonly { readonly document: unknown; readonly message: string }[];
}

/** What the composition root sees. */
export interface ClusterSource {
  readonly endpoints: EndpointDirectory;
  /** The documents to load now, and the version by which the outcome is told. */
  current(): { readonly input: ClusterInput; readonly version: string } | undefined;
  /** Called for each new version of the documents. */
  onChange(callback: () => void): void;
  applied(version: string, outcome: Applied): void;
}

export interface SnapshotSource extends ClusterSource {
  take(snapshot: Snapshot): void;
  snapshot(): Snapshot | undefined;
}

/** `told` hears what became of a version. */
export function createSnapshotSource(told: (snapshot: Snapshot, outcome: Applied) => void): SnapshotSource {
  const lists = new Map<string, readonly string[]>();
  let latest: Snapshot | undefined;
  let current: { input: ClusterInput; version: string } | undefined;
  let changed = (): void => undefined;

  function takeEndpoints({ endpoints }: Snapshot): void {
    for (const [name, addresses] of Object.entries(endpoints)) {
      const before = lists.get(name);
      // The same list stays the same object: its connections stay too.
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
      if (latest?.version === version) told(latest, outcome);
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

/** `namespace/name` of a document, for the controller. */
export function documentKey(document: unknown): string {
  const { metadata } = (document ?? {}) as { metadata?: { namespace?: string; name?: string } };
  return keyOf(metadata?.namespace ?? "", metadata?.name ?? "");
}
