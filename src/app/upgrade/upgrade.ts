/**
 * Upgrades without downtime: starts the new process, hands over sockets and store, waits until it serves, and drains.
 * If the new process fails, this process continues.
 */

import type { Clock } from "../../base/clock.ts";
import type { LimitRegistry } from "../../core/policy.ts";
import type { Logger } from "../../record/log/logger.ts";
import type { ConfigurableStore } from "../../store/open-store.ts";
import type { BusPeer } from "../../store/process-bus.ts";
import { createRemoteStore, type RemoteStore } from "../../store/remote-store.ts";
import type { Change, Store } from "../../store/store.ts";
import type { FromSuccessor, HandedSocket } from "./messages.ts";
import type { Successor, SuccessorEvents } from "./successor.ts";

const START_LIMIT_MS = 60_000;
/** The delay leaves time to send the response to the upgrade request before the admin interface closes. */
const RESPONSE_MS = 200;
/** Local rate limit counts are sent to the new process at this interval. */
const REPORT_MS = 250;

export interface UpgradeEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: ConfigurableStore;
  readonly limits: LimitRegistry;
  /** Throws if sockets cannot be handed over. */
  sockets(): readonly HandedSocket[];
  readonly start: ((sockets: readonly HandedSocket[], events: SuccessorEvents) => Successor) | undefined;
  /** `content` is the content of an in-memory store. */
  reopenStore(content: readonly Change[] | undefined): Promise<void>;
  isShuttingDown(): boolean;
  /** Called when the new process serves. This process then stops accepting. */
  leave(): void;
}

export type UpgradeOutcome =
  | { readonly ok: true; readonly pid: number; readonly version: string }
  | { readonly ok: false; readonly reason: string };

export interface Upgrade {
  /** Concurrent calls share one upgrade. */
  run(): Promise<UpgradeOutcome>;
  allRequestsEnded(): void;
}

export function createUpgrade(env: UpgradeEnv): Upgrade {
  const { clock, logger } = env;
  let running: Promise<UpgradeOutcome> | undefined;
  let reportTo: Successor | undefined;

  function sendBuckets(to: Successor, since: "ever" | "last"): void {
    for (const limit of env.limits.handed()) {
      const buckets = limit.used(since);
      if (buckets.length > 0) to.send({ type: "buckets used", name: limit.name, buckets });
    }
  }

  function report(): void {
    if (reportTo === undefined) return;
    sendBuckets(reportTo, "last");
    clock.after(REPORT_MS, report);
  }

  async function run(): Promise<UpgradeOutcome> {
    if (env.isShuttingDown()) return { ok: false, reason: "the gateway is shutting down" };
    logger.info("starting the new process");
    const outcome = await attempt();
    if (!outcome.ok) {
      logger.error("the new process did not start; this one continues", { reason: outcome.reason });
      return outcome;
    }
    logger.info("the new process serves; this one drains", { pid: outcome.pid, version: outcome.version });
    clock.after(RESPONSE_MS, env.leave);
    return outcome;
  }

  async function attempt(): Promise<UpgradeOutcome> {
    let remote: RemoteStore | undefined;
    let peer: BusPeer | undefined;
    let before: Store | undefined;
    let isServed = false;
    let isReady = false;
    let content: readonly Change[] | undefined;
    let successor: Successor | undefined;
    const outcome = await new Promise<UpgradeOutcome>((resolve) => {
      const fail = (reason: string): void => {
        if (isReady) {
          // The new process ended before this one.
          remote?.gone(reason);
          return;
        }
        // What the new process did with an in-memory store that it did not return is lost with it.
        remote?.hold(isServed && before?.kind !== "memory");
        peer?.close();
        resolve({ ok: false, reason });
      };
      const limit = clock.after(START_LIMIT_MS, () => fail("it was not ready within 60 s"));
      const onMessage = (message: FromSuccessor): void => {
        if (message.type === "store result") remote?.answered(message);
        else if (message.type === "bus message" || message.type === "bus receipt") peer?.received(message);
        else if (message.type === "store served") isServed = true;
        else if (message.type === "failed") {
          isServed = false;
          content = message.content;
          fail(message.reason);
        } else if (message.type === "ready") {
          limit.cancel();
          isReady = true;
          reportTo = successor;
          report();
          resolve({ ok: true, pid: successor?.pid ?? 0, version: message.version });
        } else if (message.type === "buckets wanted") {
          const to = successor as Successor;
          sendBuckets(to, "ever");
          to.send({ type: "buckets given" });
        } else {
          const to = successor as Successor;
          remote = createRemoteStore(env.store.kind, clock, to.send, { isShared: () => true });
          before = env.store.switchTo(remote);
          peer = env.store.processBus.connect(to.send);
          to.send({ type: "bus open" });
          const given = before?.content?.();
          if (given !== undefined) to.send({ type: "store given", content: given });
          else void before?.close().then(() => to.send({ type: "store given" }));
        }
      };
      try {
        if (env.start === undefined)
          throw new Error("this gateway cannot start another one, because it has no program of its own");
        successor = env.start(env.sockets(), { message: onMessage, ended: fail });
      } catch (error) {
        fail((error as Error).message);
      }
    });
    if (outcome.ok) {
      // The new process has the content of an in-memory store. Other stores are already closed.
      if (before?.kind === "memory") await before.close();
      return outcome;
    }
    await successor?.kill();
    if (before !== undefined && remote !== undefined) await restoreStore(before, remote, content);
    return outcome;
  }

  async function restoreStore(before: Store, remote: RemoteStore, content?: readonly Change[]): Promise<void> {
    try {
      // An in-memory store still has its entries unless the new process has newer ones. Other stores were closed.
      if (before.kind === "memory" && content === undefined) env.store.switchTo(before);
      else await env.reopenStore(content);
      remote.retake(env.store);
    } catch (error) {
      const reason = (error as Error).message;
      logger.error("store could not be reopened", { reason });
      remote.gone(reason);
    }
  }

  return {
    run() {
      running ??= run().then((outcome) => {
        if (!outcome.ok) running = undefined;
        return outcome;
      });
      return running;
    },
    allRequestsEnded() {
      if (reportTo !== undefined) sendBuckets(reportTo, "last");
      reportTo = undefined;
    },
  };
}
