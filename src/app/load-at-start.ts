/**
 * Loads the first configuration, and sets up what the gateway needs before it listens: inherited sockets, logging, the
 * store, and the session key.
 */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Ui } from "../admin/ui/ui.ts";
import { fileProblem } from "../base/files.ts";
import { openSources, type Sources } from "../config/load/load.ts";
import type { ProcessSettings } from "../config/prepare.ts";
import {
  createInheritedSockets,
  type InheritedSockets,
  inheritedSockets,
} from "../pipeline/listen/inherited-sockets.ts";
import type { ConfigurableStore, StoreSettings } from "../store/open-store.ts";
import type { Change } from "../store/store.ts";
import type { AppOptions } from "./app-options.ts";
import { logFilter, type Services } from "./services.ts";
import type { Shutdown } from "./shutdown.ts";
import { StartError } from "./start-error.ts";
import { loadForThreads, type ThreadedLoad } from "./threads/load-for-threads.ts";
import { createHandedSockets, type HandedSockets } from "./upgrade/handed-sockets.ts";
import type { Predecessor } from "./upgrade/predecessor.ts";

export interface StartLoad extends ThreadedLoad {
  readonly sources: Sources;
  readonly handed: HandedSockets;
  readonly inherited: InheritedSockets;
}

export async function loadAtStart(
  options: AppOptions,
  services: Services,
  shutdown: Shutdown,
  ui: Ui,
): Promise<StartLoad> {
  const { logging, resources, store, signingKey } = services;
  const sources = openSources(options.sources, options.readStdin);
  const handed = createHandedSockets(options.predecessor?.sockets ?? []);
  const activated = inheritedSockets(options.environment, process.pid);
  const loaded = loadForThreads(options, services, sources, ui.source, activated.length > 0, handed);
  // With several threads, the pool passes the sockets to its threads.
  const inherited = createInheritedSockets([...activated, ...(loaded.threads === 1 ? handed.forListeners : [])]);
  const { first } = loaded;
  shutdown.at("resources", first.discard);
  shutdown.at("resources", resources.closeAll);
  const { process: settings, redaction } = first.config.settings;
  logging.setFilter(logFilter(settings.logging?.level ?? "info"));
  logging.setFormat(settings.logging?.format ?? "text");
  logging.setRedactor(redaction.text);
  await openHandedStore(store, first.config.settings, options.predecessor);
  shutdown.at("store", store.close);
  await signingKey.open(settings.sessionKey ?? []);
  shutdown.at("store", signingKey.close);
  return { ...loaded, sources, handed, inherited };
}

/** `content` is the content of the previous process's in-memory store, which is copied to the new store. */
export async function openConfiguredStore(
  store: ConfigurableStore,
  config: ProcessSettings,
  content: readonly Change[] = [],
): Promise<void> {
  try {
    const settings = storeSettings(config);
    if (settings.kind === "memory") await store.open({ ...settings, content });
    else {
      await store.open(settings);
      for (const [key, value, expiresAtMs] of content)
        if (value !== undefined) await store.replace(key, undefined, value, expiresAtMs ? { expiresAtMs } : {});
    }
  } catch (error) {
    throw new StartError([`${config.places.store}: ${(error as Error).message}`]);
  }
}

export function storeSettings({
  process: { store, cacheMaxBytes: cacheBytes },
  folder,
}: ProcessSettings): StoreSettings {
  if (store === undefined || store === "memory") return { kind: "memory", cacheBytes };
  if ("folder" in store) return { kind: "folder", folder: resolve(folder, store.folder), cacheBytes };
  const { redis, password, prefix, timeout: timeoutMs, ca } = store;
  const url = password === undefined ? redis : withPassword(redis, password);
  return { kind: "redis", url, prefix, timeoutMs, ca: ca === undefined ? undefined : readText(resolve(folder, ca)) };
}

function withPassword(url: string, password: string): string {
  const complete = new URL(url);
  complete.password = password;
  return complete.href;
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new Error(fileProblem(path, error));
  }
}

export async function openHandedStore(
  configurable: ConfigurableStore,
  config: ProcessSettings,
  predecessor: Predecessor | undefined,
): Promise<void> {
  const { store } = config.process;
  // Both processes can use Redis at the same time, so nothing is handed over.
  const isShared = typeof store === "object" && "redis" in store;
  const content = isShared ? undefined : await predecessor?.takeStore();
  await openConfiguredStore(configurable, config, content);
  predecessor?.serveStore(configurable);
}
