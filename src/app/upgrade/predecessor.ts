/**
 * The new process's side of an upgrade: receives the sockets and store of the old process and notifies it when ready.
 * Unused in a process that was not started for an upgrade.
 */
import type { Environment } from "../../config/text/env.ts";
import type { LimitRegistry } from "../../core/policy.ts";
import { serveStoreRequest } from "../../store/remote-store.ts";
import type { Store } from "../../store/store.ts";
import type { Change } from "../../store/table.ts";
import { type FromPredecessor, type FromSuccessor, HANDED_SOCKETS, type HandedSocket } from "./messages.ts";

export interface Predecessor {
  readonly sockets: readonly HandedSocket[];
  /** Resolves when the old process has released its store, with the content of an in-memory store. */
  takeStore(): Promise<readonly Change[] | undefined>;
  /** Serves store requests of the old process until it exits. */
  serveStore(store: Store): void;
  /** Resolves when the limits have the old counts; later counts of the old process are added as they arrive. */
  takeBuckets(limits: LimitRegistry): Promise<void>;
  ready(version: string): void;
  failed(reason: string): void;
}

/** The channel to the parent process. */
export interface ParentChannel {
  send(message: FromSuccessor): void;
  onMessage(listener: (message: FromPredecessor) => void): void;
  /** The channel no longer keeps the process alive. */
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
      // The new configuration does not have this rule.
      limits
        ?.handed()
        .find(({ name }) => name === message.name)
        ?.add(message.buckets);
    else if (store !== undefined) void serveStoreRequest(store, message).then((answer) => channel.send(answer));
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

/** The IPC channel that Node.js opens to the parent. */
export function parentChannel(): ParentChannel | undefined {
  if (process.send === undefined) return undefined;
  // The parent has exited.
  const ignore = (): undefined => undefined;
  process.on("disconnect", ignore);
  return {
    send: (message) => void process.send?.(message, undefined, undefined, ignore),
    onMessage: (listener) => void process.on("message", (message) => listener(message as FromPredecessor)),
    release: () => process.channel?.unref(),
  };
}
