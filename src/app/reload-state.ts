/**
 * How the last load of the configuration went, as `/config_dump` tells it. Pure: a state and what happened go in, the
 * next state comes out.
 */
import type { ReloadState } from "../config/dump.ts";

export function firstLoad(at: Date, sources: readonly string[], warnings: readonly string[]): ReloadState {
  return { loadedAt: at.toISOString(), generation: 1, warnings, sources, needsRestart: [] };
}

/** A new configuration serves; what an earlier attempt was refused for is over. */
export function afterLoad(
  state: ReloadState,
  at: Date,
  warnings: readonly string[],
  needsRestart: readonly string[],
): ReloadState {
  return {
    loadedAt: at.toISOString(),
    generation: state.generation + 1,
    warnings,
    sources: state.sources,
    needsRestart,
  };
}

/** The configuration before goes on, and everything said about it stays true. */
export function afterRefusal(state: ReloadState, at: Date, problems: readonly string[]): ReloadState {
  return { ...state, refused: { at: at.toISOString(), problems } };
}

/** The sources are again those of the running configuration. */
export function afterRestore({ refused: _, ...rest }: ReloadState): ReloadState {
  return rest;
}
