/**
 * The exports of a CommonJS package that is loaded lazily: Node finds their names, a bundle hands them over as
 * `default` only. For every `import("package")` of such a package.
 */
export function exportsOf<Exports extends object>(loaded: Exports): Exports {
  return "default" in loaded ? (loaded.default as Exports) : loaded;
}
