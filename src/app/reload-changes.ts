/**
 * Describes for the log what a reload changed.
 */
import { configDump } from "../config/dump.ts";
import { changesBetween } from "../config/dump-changes.ts";
import type { Topology } from "../core/topology.ts";
import type { LogFields } from "../record/log/logger.ts";
import type { Loaded } from "./config-loader.ts";

/** More names are counted. */
const MAX_NAMES = 10;
/** Comparing larger configurations would delay requests. */
const MAX_COMPARED_ROUTES = 500;

/** Describes what a reload added, changed, and removed, for example `changed="route shop, backend shop/backend0"`. */
export function reloadChanges(before: Loaded, next: Loaded): LogFields {
  if ([before, next].some(({ topology }) => countRoutes(topology) > MAX_COMPARED_ROUTES)) return {};
  const changes = changesBetween(dumpOf(before), dumpOf(next));
  if (changes.length === 0) return { changed: "nothing" };
  return Object.fromEntries(
    (["added", "changed", "removed"] as const).flatMap((kind) => {
      const names = changes
        .filter(({ change }) => change === kind)
        .map(({ what, name }) => (what === "config" ? name : `${what} ${name}`));
      const more = names.length > MAX_NAMES ? `, and ${names.length - MAX_NAMES} more` : "";
      return names.length === 0 ? [] : [[kind, `${names.slice(0, MAX_NAMES).join(", ")}${more}`]];
    }),
  );
}

function countRoutes({ listeners }: Topology): number {
  return listeners.reduce((sum, { routes }) => sum + routes.length, 0);
}

function dumpOf(loaded: Loaded): Readonly<Record<string, unknown>> {
  return configDump({
    ...loaded,
    ...loaded.settings,
    version: "",
    reload: { loadedAt: "", generation: 0, warnings: [], sources: [], needsRestart: [] },
    ports: new Map(),
  });
}
