/**
 * Returns the exports of a CommonJS package that was loaded with `import()`. A bundle may provide them only as
 * `default`.
 */
export function exportsOf<Exports extends object>(loaded: Exports): Exports {
  return "default" in loaded ? (loaded.default as Exports) : loaded;
}
