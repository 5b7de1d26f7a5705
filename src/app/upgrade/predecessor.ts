/**
 * The new process's side of an upgrade: the sockets that the old one handed over, its store, and the word that it may go.
 * A process that nobody started for an upgrade has none of this.
 */
import type { Environment } from "../../config/text/env.ts";
import type { LimitRegistry } from "../../core/policy.ts";
import { answerStore } from "../../store/remote-store.ts";
import type { Store } from "../../store/store.ts";
import type { Change } from "../../store/table.ts";
import { type FromPredecessor, type FromSuccessor, HANDED_SOCKETS, type HandedSocket } from "./messages.ts";

export interface Predecessor {
  readonly sockets: readonly HandedSocket[];
  /** Resolves when the old process has let go of its store, with the content of one in memory. */
  takeStore(): Promise<readonly Change[] | undefined>;
  /** The old process may ask this store until it has ended. */
  serveStore(store: Store): void;
  /** Resolves when the limits have what was counted before; what the old process still counts is added later. */
  takeBuckets(limits: LimitRegistry): Promise<void>;
  ready(version: string): void;
  failed(reason: string): void;
}

/** What this needs of the process. */
export interface ParentChannel {
  send(message: FromSuccessor): void;
  onMessage(listener: (message: FromPredecessor) => void): void;
  /** From now on it does not keep the process alive. */
  release(): void;
}

export function openPredecessor(environment: Environment, channel: ParentChannel | undefined): Predecessor | undefined {
  const written = environment[HANDED_SOCKETS];
  if (written === undefined || channel === undefined) return undefined;
  let store: Store | undefined;
  let storeGiven: ((content: readonly Change[] | undefined) => void) | undefined;
  let limits: LimitRegistry | undefined;
  let bucketsGiven: (() => void) | undefined;
  channel.onMessage((message) => {
    if (message.type === "store given") storeGiven?.(message.content);
    else if (message.type === "buckets given") bucketsGiven?.();
    else if (message.type === "buckets used")
      // A rule that the new configuration does not have has nobody to count for.
      limits
        ?.handed()
        .find(({ name }) => name === message.name)
        ?.add(message.buckets);
    else if (store !== undefined) void answerStore(store, message).then((answer) => channel.send(answer));
    else channel.send({ type: "store result", id: message.id, error: ["StoreUnavailable", "it is not open yet"] });
  });
  return {
    sockets: JSON.parse(written) as HandedSocket[],
    takeStore: () =>
      new Promise((resolve) => {
        storeGiven = resolve;
        channel.send({ type: "store wanted" });
      }),
    serveStore: (opened) => {
      store = opened;
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

/** The channel that Node opens to a parent which wants one. */
export function parentChannel(): ParentChannel | undefined {
  if (process.send === undefined) return undefined;
  // A parent that has ended needs no word any more.
  const ignore = (): undefined => undefined;
  process.on("disconnect", ignore);
  return {
    send: (message) => void process.send?.(message, undefined, undefined, ignore),
    onMessage: (listener) => void process.on("message", (message) => listener(message as FromPredecessor)),
    release: () => process.channel?.unref(),
  };
}
