/**
 * Opens what `config.store` names: paths are relative to the file, and a folder or file that cannot be used stops the
 * start with the place where it is written.
 */
import { readFileSync } from "node:fs";
import { fileProblem } from "../base/file-problem.ts";
import type { ConfigurableStore, StoreSettings } from "../store/open-store.ts";
import type { Change } from "../store/table.ts";
import type { Loaded } from "./config-loader.ts";
import { StartError } from "./start-error.ts";

/** `content`: of the store that the process before this one had in memory. */
export async function openConfiguredStore(
  store: ConfigurableStore,
  config: Loaded,
  content: readonly Change[] = [],
): Promise<void> {
  try {
    const settings = settingsOf(config);
    if (settings.kind === "memory") await store.open({ ...settings, content });
    else {
      await store.open(settings);
      for (const [key, value, expiresAtMs] of content)
        if (value !== undefined) await store.replace(key, undefined, value, expiresAtMs ? { expiresAtMs } : {});
    }
  } catch (error) {
    throw new StartError([`${config.processWrittenAt("store")}: ${(error as Error).message}`]);
  }
}

function settingsOf({ process: { store, cacheMaxBytes: cacheBytes }, processPath }: Loaded): StoreSettings {
  if (store === undefined || store === "memory") return { kind: "memory", cacheBytes };
  if ("folder" in store) return { kind: "folder", folder: processPath(store.folder), cacheBytes };
  const { redis: url, prefix, timeout: timeoutMs, ca } = store;
  return { kind: "redis", url, prefix, timeoutMs, ca: ca === undefined ? undefined : readText(processPath(ca)) };
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new Error(fileProblem(path, error));
  }
}
