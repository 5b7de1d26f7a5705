/**
 * Loads a module at its first use, synchronously (ADR 46). The argument calls `require` with the compiled name of a module
 * in the same folder. `scripts/on-demand.mjs` finds these calls.
 */
export function onDemand<Module>(load: () => Module): () => Module {
  let module: Module | undefined;
  return () => {
    module ??= load();
    return module;
  };
}
