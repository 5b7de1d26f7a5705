/**
 * Loads a module at its first use, synchronously (ADR 46). The argument calls `require` with the compiled name of the
 * module. `scripts/on-demand.mjs` finds these calls, so keep their form.
 */
export function onDemand<Module>(load: () => Module): () => Module {
  let module: Module | undefined;
  return () => {
    module ??= load();
    return module;
  };
}
