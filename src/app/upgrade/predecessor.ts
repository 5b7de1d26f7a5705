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
import { serveStoreRequest } from "../../store/remote-store.ts";
import type { Change } from "../../store/table.ts";
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
  failed(reason: string): void;
}

export interface ParentChannel {
  send(message: FromSuccessor): void;
  onMessage(listener: (message: FromPredecessor) => void): void;
  onClose(listener: () => void): void;
  /** Lets the process exit while the channel is open. */
  release(): void;
}

export function openPredecessor(environment: Environment, channel: ParentChannel | undefined): Predecessor | undefined {
  const written = environment[HANDED_SOCKETS];
  if (written === undefined || channel === undefined) return undefined;
  let store: ConfigurableStore | undefined;
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
    else if (store !== undefined) void serveStoreRequest(store, message).then((answer) => channel.send(answer));
    else channel.send({ type: "store result", id: message.id, error: ["StoreUnavailable", "it is not open yet"] });
  });
  channel.onClose(() => {
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
      connectBus();
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
    failed: (reason) => channel.send({ type: "failed", reason }),
  };
}

export function parentChannel(): ParentChannel | undefined {
  if (process.send === undefined) return undefined;
  // Without this handler, a message after the exit of the parent would end this process with an error.
  const ignore = (): undefined => undefined;
  return {
    send: (message) => void process.send?.(message, undefined, undefined, ignore),
    onMessage: (listener) => void process.on("message", (message) => listener(message as FromPredecessor)),
    onClose: (listener) => void process.on("disconnect", listener),
    release: () => process.channel?.unref(),
  };
}
