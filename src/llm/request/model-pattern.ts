/**
 * Names of models with at most one `*`, as configurations and keys write them.
 */

/** What the `*` of a pattern stands for in a name; undefined if it does not match. */
export function matchPattern(pattern: string, name: string): string | undefined {
  const star = pattern.indexOf("*");
  if (star < 0) return pattern === name ? "" : undefined;
  const prefix = pattern.slice(0, star);
  const suffix = pattern.slice(star + 1);
  const matches = name.length >= prefix.length + suffix.length && name.startsWith(prefix) && name.endsWith(suffix);
  return matches ? name.slice(prefix.length, name.length - suffix.length) : undefined;
}
