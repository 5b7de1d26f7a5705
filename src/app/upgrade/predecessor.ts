/**
 * Implements the new process's side of an upgrade. It receives the sockets, store, and rate limit counts of the old
 * process.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import type { Environment } from "../../config/text/env.ts";
import type { LimitRegistry } from "../../core/policy.ts";
import { readJson } from "../../json/read-json.ts";
import type { ConfigurableStore } from "../../store/open-store.ts";
import type { BusPeer } from "../../store/process-bus.ts";
import { type StoreRequest, serveStoreRequest } from "../../store/remote-store.ts";
import type { Change } from "../../store/store.ts";
import { type FromPredecessor, type FromSuccessor, HANDED_SOCKETS, type HandedSocket } from "./messages.ts";

const SOCKETS = peerInput("upgraded-process/sockets");

export interface Predecessor {
  readonly sockets: readonly HandedSocket[];
  /** Resolves when the old process has released its store, with the content of an in-memory store. */
  takeStore(): Promise<readonly Change[] | undefined>;
  /** Serves store requests of the old process until it exits. */
  serveStore(store: ConfigurableStore): void;
  /** Resolves when the current counts are applied. Later counts of the old process are added as they arrive. */
  takeBuckets(limits: LimitRegistry): Promise<void>;
  ready(version: string): void;
  /** Resolves when the old process has ended. Until then, it may use the store. */
  readonly ended: Promise<void>;
  /** Stops serving the store. Resolves when all operations that began have been answered. */
  release(): Promise<void>;
  /** Resolves when the message was sent. Call it after `release` and after the store is closed. */
  failed(reason: string): Promise<void>;
}

export interface ParentChannel {
  send(message: FromSuccessor, sent?: () => void): void;
  onMessage(listener: (message: FromPredecessor) => void): void;
  onClose(listener: () => void): void;
  /** Lets the process exit while the channel is open. */
  release(): void;
}

export function openPredecessor(environment: Environment, channel: ParentChannel | undefined): Predecessor | undefined {
  const written = environment[HANDED_SOCKETS];
  if (written === undefined || channel === undefined) return undefined;
  let store: ConfigurableStore | undefined;
  let content: readonly Change[] | undefined;
  /** Operations that arrived before the store was open. */
  const early: StoreRequest[] = [];
  const running = new Set<Promise<void>>();
  const serve = (request: StoreRequest): void => {
    if (store === undefined) {
      early.push(request);
      return;
    }
    const done = serveStoreRequest(store, request)
      .then((answer) => channel.send(answer))
      .finally(() => running.delete(done));
    running.add(done);
  };
  let peer: BusPeer | undefined;
  let hasBus = false;
  const connectBus = (): void => {
    if (hasBus) peer ??= store?.processBus.connect(channel.send);
  };
  let storeGiven: ((content: readonly Change[] | undefined) => void) | undefined;
  let limits: LimitRegistry | undefined;
  let bucketsGiven: (() => void) | undefined;
  channel.onMessage((message) => {
    if (message.type === "store given") storeGiven?.(message.content);
    else if (message.type === "buckets given") bucketsGiven?.();
    else if (message.type === "buckets used")
      // Counts are ignored if the new configuration does not have the rule.
      limits
        ?.handed()
        .find(({ name }) => name === message.name)
        ?.add(message.buckets);
    else if (message.type === "bus open") {
      hasBus = true;
      connectBus();
    } else if (message.type === "bus message" || message.type === "bus receipt") peer?.received(message);
    else serve(message);
  });
  const ended = new Promise<void>((resolve) => channel.onClose(resolve));
  void ended.then(() => {
    store?.setServed(false);
    peer?.close();
  });
  return {
    sockets: readJson(SOCKETS, written) as HandedSocket[],
    takeStore: () =>
      new Promise((resolve) => {
        storeGiven = resolve;
        channel.send({ type: "store wanted" });
      }),
    serveStore: (opened) => {
      store = opened;
      opened.setServed(true);
      channel.send({ type: "store served" });
      connectBus();
      for (const request of early.splice(0)) serve(request);
    },
    takeBuckets: (registry) =>
      new Promise((resolve) => {
        limits = registry;
        bucketsGiven = resolve;
        channel.send({ type: "buckets wanted" });
      }),
    ready(version) {
      channel.send({ type: "ready", version });
      channel.release();
    },
    ended,
    async release() {
      const served = store;
      // The old process runs the operations that arrive from now on itself.
      store = undefined;
      await Promise.all(running);
      content = served?.content?.();
    },
    failed: (reason) =>
      new Promise((resolve) => {
        void ended.then(resolve);
        channel.send({ type: "failed", reason, ...(content ? { content } : {}) }, resolve);
      }),
  };
}

export function parentChannel(): ParentChannel | undefined {
  if (process.send === undefined) return undefined;
  // Without this handler, a message after the exit of the parent would end this process with an error.
  const ignore = (): undefined => undefined;
  return {
    send: (message, sent = ignore) => void process.send?.(message, undefined, undefined, () => sent()),
    onMessage: (listener) => void process.on("message", (message) => listener(message as FromPredecessor)),
    onClose: (listener) => void process.on("disconnect", listener),
    release: () => process.channel?.unref(),
  };
}
