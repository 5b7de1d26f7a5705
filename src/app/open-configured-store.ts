/**
 * Opens what `config.store` names: paths are relative to the file, and a folder or file that cannot be used stops the
 * start with the place where it is written.
 */
import { readFileSync } from "node:fs";
import type { StoreDoor, StoreSettings } from "../lib/store/open-store.ts";
import { fileProblem } from "../lib/text/file-problem.ts";
import type { Loaded } from "./config-loader.ts";
import { StartError } from "./start-error.ts";

export async function openConfiguredStore(door: StoreDoor, config: Loaded): Promise<void> {
  try {
    await door.open(settingsOf(config));
  } catch (error) {
    throw new StartError([`${config.processWrittenAt("store")}: ${(error as Error).message}`]);
  }
}

function settingsOf({ process: { store }, processPath }: Loaded): StoreSettings {
  if (store === undefined || store === "memory") return { kind: "memory" };
  if ("folder" in store) return { kind: "folder", folder: processPath(store.folder) };
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
