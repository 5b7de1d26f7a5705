/**
 * Returns the exports of a lazily loaded CommonJS package. Node detects the export names, but a bundle provides
 * `default` only. Use it for every `import("package")` of a CommonJS package.
 */
export function exportsOf<Exports extends object>(loaded: Exports): Exports {
  return "default" in loaded ? (loaded.default as Exports) : loaded;
}
