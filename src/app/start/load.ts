/**
 * The first load: sources, sockets that were handed over or inherited, the configuration that will serve, and what it needs
 * before anything listens (log settings, store, key for session ids).
 */
import type { Ui } from "../../admin/ui/ui-endpoints.ts";
import { openSources, type Sources } from "../../config/load/load.ts";
import {
  createInheritedSockets,
  type InheritedSockets,
  inheritedSockets,
} from "../../pipeline/listen/inherited-sockets.ts";
import { logFilter, type Services } from "../services.ts";
import type { Shutdown } from "../shutdown.ts";
import { loadForThreads, type ThreadedLoad } from "../threads/load-for-threads.ts";
import { createHandedSockets } from "../upgrade/handed-sockets.ts";
import { openHandedStore } from "../upgrade/handed-store.ts";
import type { AppOptions } from "./app-options.ts";

export interface StartLoad extends ThreadedLoad {
  readonly sources: Sources;
  readonly handed: ReturnType<typeof createHandedSockets>;
  readonly inherited: InheritedSockets;
}

/** Throws a StartError. */
export async function loadAtStart(
  options: AppOptions,
  services: Services,
  shutdown: Shutdown,
  ui: Ui,
): Promise<StartLoad> {
  const { logging, resources, store, signingKey } = services;
  const sources = openSources(options.sources, options.readStdin);
  const handed = createHandedSockets(options.predecessor?.sockets ?? []);
  const inherited = createInheritedSockets([
    ...inheritedSockets(options.environment, process.pid),
    ...handed.forListeners,
  ]);
  const isActivated = inherited.unused().length > 0;
  const loaded = loadForThreads(options, services, sources, ui.source, isActivated);
  const { first } = loaded;
  shutdown.at("resources", first.discard);
  shutdown.at("resources", resources.closeAll);
  const { process: settings } = first.config;
  logging.setFilter(logFilter(settings.logging?.level ?? "info"));
  logging.setFormat(settings.logging?.format ?? "text");
  logging.setRedactor(first.config.redaction.text);
  await openHandedStore(store, first.config, options.predecessor);
  shutdown.at("store", store.close);
  await signingKey.open(settings.sessionKey ?? []);
  shutdown.at("store", signingKey.close);
  return { ...loaded, sources, handed, inherited };
}
