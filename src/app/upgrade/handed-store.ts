/**
 * Opens the store of a process that takes another one's place: the other lets go of it first, and asks this one for what
 * its last requests still need.
 */
import type { ConfigurableStore } from "../../store/open-store.ts";
import type { Loaded } from "../config-loader.ts";
import { openConfiguredStore } from "../open-configured-store.ts";
import type { Predecessor } from "./predecessor.ts";

export async function openHandedStore(
  configurable: ConfigurableStore,
  config: Loaded,
  predecessor: Predecessor | undefined,
): Promise<void> {
  const { store } = config.process;
  // Both processes may have connections to Redis.
  const isShared = typeof store === "object" && "redis" in store;
  const content = isShared ? undefined : await predecessor?.takeStore();
  await openConfiguredStore(configurable, config, content);
  predecessor?.serveStore(configurable);
}
