/**
 * The history of traffic over a restart, where the store outlives the process: written every minute and at the end, read at
 * the start while requests are already served. Each process and thread has its own; a store that is away costs a gap.
 */
import { hostname } from "node:os";
import { HISTORY_SECONDS, type TrafficHistory } from "../../pipeline/records/traffic-history.ts";
import { storeNamespace } from "../../store/store.ts";
import type { Services } from "../services.ts";
import type { Shutdown } from "../shutdown.ts";

const SAVE_MS = 60_000;

export function keepHistory(
  { clock, store, logger }: Pick<Services, "clock" | "store" | "logger">,
  history: TrafficHistory,
  shutdown: Shutdown,
  thread = 0,
): void {
  if (store.kind === "memory") return;
  const kept = storeNamespace(store, "history");
  // Replicas that share a store have other host names, and so has the same pod after a move: then its past is not known.
  const key = `${hostname()}.${thread}`;
  let isRead = false;
  let isTold = false;
  /** An idle gateway writes nothing. */
  let saved = "[[],[]]";

  const failed = (error: Error): void => {
    if (!isTold) logger.for("app").warn("the history of traffic is not kept", { reason: error.message });
    isTold = true;
  };
  const read = kept.get(key).then((text) => {
    if (text !== undefined) history.unpack(text);
    isRead = true;
  }, failed);

  async function save(): Promise<void> {
    await read;
    try {
      // What could not be read at the start is not written over unseen.
      if (!isRead) history.unpack((await kept.get(key)) ?? "[]");
      isRead = true;
      const packed = history.packed();
      if (packed === saved) return;
      await kept.set(key, packed, { expiresAtMs: clock.now() + HISTORY_SECONDS * 1000 });
      saved = packed;
      isTold = false;
    } catch (error) {
      failed(error as Error);
    }
  }

  const timer = clock.every(SAVE_MS, () => void save());
  shutdown.at("outgoing", () => {
    timer.cancel();
    return save();
  });
}
