/**
 * Elects the controller replica that writes, with a Lease (coordination.k8s.io). Expiry is measured with the local
 * clock from the last observed change, never by comparing the clocks of two machines.
 */

import type { Clock, Timer } from "../base/clock.ts";
import { fieldsOf } from "../config/text/value-shapes.ts";
import type { Logger } from "../observe/log/logger.ts";
import { type ApiClient, ApiError } from "./api-client.ts";

const LEASE_SECONDS = 15;
/** A leader that cannot renew for this long stops writing before another replica can take over. */
const GIVE_UP_MS = 10_000;
const RENEW_INTERVAL_MS = 3_000;

export interface Leader {
  isLeader(): boolean;
  /** Releases the Lease, so that another replica takes over immediately. */
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
  random(): number;
  changed(): void;
}

export function electLeader(parts: LeaderParts): Leader {
  const { client, clock, logger, namespace, name, identity } = parts;
  const path = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`;
  let isLeader = false;
  let renewedMs = 0;
  let seen = { text: "", sinceMs: 0 };
  let timer: Timer | undefined;
  let isStopped = false;

  function become(leads: boolean): void {
    if (leads) renewedMs = clock.monotonicMs();
    if (leads === isLeader) return;
    isLeader = leads;
    logger.info(leads ? "became leader" : "lost leadership", { lease: `${namespace}/${name}`, identity });
    parts.changed();
  }

  const time = (): string => new Date(clock.now()).toISOString().replace("Z", "000Z");
  const spec = (transitions: number): Record<string, unknown> => ({
    holderIdentity: identity,
    leaseDurationSeconds: LEASE_SECONDS,
    acquireTime: time(),
    renewTime: time(),
    leaseTransitions: transitions,
  });

  async function tryAcquire(): Promise<void> {
    let lease: Record<string, unknown>;
    try {
      lease = fieldsOf(await client.request({ method: "GET", path: `${path}/${name}` }));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      const body = {
        apiVersion: "coordination.k8s.io/v1",
        kind: "Lease",
        metadata: { name, namespace },
        spec: spec(0),
      };
      await client.request({ method: "POST", path, body });
      become(true);
      return;
    }
    const before = fieldsOf(lease.spec);
    const text = JSON.stringify(before);
    if (text !== seen.text) seen = { text, sinceMs: clock.monotonicMs() };
    const isOurs = before.holderIdentity === identity;
    const isFree = before.holderIdentity === undefined || before.holderIdentity === "";
    const isOver = clock.monotonicMs() - seen.sinceMs > LEASE_SECONDS * 1000;
    if (!isOurs && !isFree && !isOver) {
      become(false);
      return;
    }
    const transitions = Number(before.leaseTransitions ?? 0);
    const next = isOurs ? { ...before, renewTime: time() } : spec(transitions + 1);
    // The resourceVersion ensures that only one replica acquires the Lease.
    await client.request({ method: "PUT", path: `${path}/${name}`, body: { ...lease, spec: next } });
    become(true);
  }

  function scheduleNext(): void {
    if (isStopped) return;
    timer = clock.after(RENEW_INTERVAL_MS * (0.8 + 0.4 * parts.random()), run);
  }

  function run(): void {
    tryAcquire()
      .catch((error: Error) => {
        const isConflict = error instanceof ApiError && error.status === 409;
        if (isConflict) become(false);
        else if (isLeader && clock.monotonicMs() - renewedMs > GIVE_UP_MS) become(false);
        if (!isConflict) logger.debug("the lease could not be renewed", { reason: error.message });
      })
      .finally(scheduleNext);
  }
  run();

  return {
    isLeader: () => isLeader,
    async stop() {
      isStopped = true;
      timer?.cancel();
      if (!isLeader) return;
      isLeader = false;
      try {
        const lease = fieldsOf(await client.request({ method: "GET", path: `${path}/${name}` }));
        const held = fieldsOf(lease.spec);
        if (held.holderIdentity !== identity) return;
        await client.request({
          method: "PUT",
          path: `${path}/${name}`,
          body: { ...lease, spec: { ...held, holderIdentity: "" } },
        });
      } catch {
        // The Lease expires even without a release.
      }
    },
  };
}
