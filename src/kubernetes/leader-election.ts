/**
 * Elects the controller replica that writes, with a Lease (coordination.k8s.io). Expiry is measured with the local
 * clock from the last observed change, never by comparing the clocks of two machines.
 */

import type { Clock, Timer } from "../base/clock.ts";
import { POLICY_API_GROUP } from "../config/documents/documents.ts";
import { fieldsOf, textOf } from "../config/text/value-shapes.ts";
import type { Logger } from "../record/log/logger.ts";
import { type ApiClient, ApiError, type ApiRequest } from "./api-client.ts";

const LEASE_SECONDS = 15;
/**
 * A leader stops writing this long after it sent its last successful renewal. The remaining 5 s of the Lease cover a
 * write that is already on its way when the term ends.
 */
const TERM_MS = 10_000;
const RENEW_INTERVAL_MS = 3_000;
const REQUEST_TIMEOUT_MS = 3_000;
/** A replica without a response of the API server for this long counts as disconnected. */
const CONTACT_MS = LEASE_SECONDS * 1000;
const ADDRESS_ANNOTATION = `${POLICY_API_GROUP}/address`;

export interface Leader {
  /** False as soon as the term has passed, even if no timer could run. */
  isLeader(): boolean;
  /** Returns the `host:port` of the leader if it is another replica. */
  leaderAddress(): string | undefined;
  isConnected(): boolean;
  stop(): Promise<void>;
}

export interface LeaderParts {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly namespace: string;
  readonly name: string;
  /** The identity must be unique among all replicas. */
  readonly identity: string;
  readonly address: string;
  /** Only tests set this value. */
  readonly termMs?: number;
  random(): number;
  /** Called when the role of this replica, the leader, or the leader's address has changed. */
  changed(): void;
  /** Called when the API server responds again after an interruption. */
  reconnected(): void;
}

export function electLeader(parts: LeaderParts): Leader {
  const { client, clock, logger, namespace, name, identity, termMs = TERM_MS } = parts;
  const path = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`;
  let wasLeader = false;
  let renewedMs = Number.NEGATIVE_INFINITY;
  let contactMs = clock.monotonicMs();
  let leaderAddress: string | undefined;
  let seen = { text: "", sinceMs: 0 };
  let timer: Timer | undefined;
  let termEnd: Timer | undefined;
  let isStopped = false;

  const isLeader = (): boolean => wasLeader && clock.monotonicMs() - renewedMs < termMs;
  const isConnected = (): boolean => clock.monotonicMs() - contactMs < CONTACT_MS;

  function become(leads: boolean, address?: string): void {
    termEnd?.cancel();
    if (leads) termEnd = clock.after(Math.max(0, renewedMs + termMs - clock.monotonicMs()), () => become(false));
    const isSame = leads === wasLeader && address === leaderAddress;
    if (leads !== wasLeader)
      logger.info(leads ? "became leader" : "lost leadership", { lease: `${namespace}/${name}`, identity });
    wasLeader = leads;
    leaderAddress = address;
    if (!isSame && !isStopped) parts.changed();
  }

  /** Any response shows that the API server is reachable. */
  async function request(message: ApiRequest): Promise<Record<string, unknown>> {
    const responded = (): void => {
      const isBack = !isConnected();
      contactMs = clock.monotonicMs();
      if (isBack && !isStopped) parts.reconnected();
    };
    try {
      const found = fieldsOf(await client.request({ ...message, timeoutMs: REQUEST_TIMEOUT_MS }));
      responded();
      return found;
    } catch (error) {
      if (error instanceof ApiError) responded();
      throw error;
    }
  }

  async function acquire(message: ApiRequest): Promise<void> {
    const sentMs = clock.monotonicMs();
    await request(message);
    if (isStopped) return;
    // A process that was suspended may detect the end of its term only now.
    if (wasLeader && !isLeader()) become(false);
    renewedMs = sentMs;
    become(clock.monotonicMs() - sentMs < termMs);
  }

  const time = (): string => new Date(clock.now()).toISOString().replace("Z", "000Z");
  const spec = (transitions: number): Record<string, unknown> => ({
    holderIdentity: identity,
    leaseDurationSeconds: LEASE_SECONDS,
    acquireTime: time(),
    renewTime: time(),
    leaseTransitions: transitions,
  });

  const annotated = (metadata: Record<string, unknown>): Record<string, unknown> => ({
    ...metadata,
    annotations: { ...fieldsOf(metadata.annotations), [ADDRESS_ANNOTATION]: parts.address },
  });

  async function tryAcquire(): Promise<void> {
    let lease: Record<string, unknown>;
    try {
      lease = await request({ method: "GET", path: `${path}/${name}` });
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      const metadata = annotated({ name, namespace });
      const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec: spec(0) };
      return acquire({ method: "POST", path, body });
    }
    const metadata = fieldsOf(lease.metadata);
    const before = fieldsOf(lease.spec);
    const text = JSON.stringify(before);
    if (text !== seen.text) seen = { text, sinceMs: clock.monotonicMs() };
    const isOurs = before.holderIdentity === identity;
    const isFree = before.holderIdentity === undefined || before.holderIdentity === "";
    const isOver = clock.monotonicMs() - seen.sinceMs > LEASE_SECONDS * 1000;
    if (isStopped) return;
    if (!isOurs && !isFree && !isOver) {
      become(false, textOf(fieldsOf(metadata.annotations)[ADDRESS_ANNOTATION]));
      return;
    }
    const transitions = Number(before.leaseTransitions ?? 0);
    const next = isOurs ? { ...before, renewTime: time() } : spec(transitions + 1);
    // The resourceVersion ensures that only one replica acquires the Lease.
    const body = { ...lease, metadata: annotated(metadata), spec: next };
    return acquire({ method: "PUT", path: `${path}/${name}`, body });
  }

  function scheduleNext(): void {
    if (isStopped) return;
    timer = clock.after(RENEW_INTERVAL_MS * (0.8 + 0.4 * parts.random()), run);
  }

  function run(): void {
    tryAcquire()
      .catch((error: Error) => {
        const isConflict = error instanceof ApiError && error.status === 409;
        if (isConflict) become(false, leaderAddress);
        else logger.debug("the lease could not be renewed", { reason: error.message });
      })
      .finally(scheduleNext);
  }
  run();

  return {
    isLeader,
    leaderAddress: () => leaderAddress,
    isConnected,
    async stop() {
      isStopped = true;
      timer?.cancel();
      const held = isLeader();
      become(false);
      if (!held) return;
      try {
        const lease = await request({ method: "GET", path: `${path}/${name}` });
        const current = fieldsOf(lease.spec);
        if (current.holderIdentity !== identity) return;
        const body = { ...lease, spec: { ...current, holderIdentity: "" } };
        await request({ method: "PUT", path: `${path}/${name}`, body });
      } catch {
        // The Lease expires even without a release.
      }
    },
  };
}
