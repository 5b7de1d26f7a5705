/**
 * Compares two JSON values leaf by leaf and returns additions, removals, and changes.
 */
export interface Difference {
  readonly path: string;
  readonly before: string | undefined;
  readonly after: string | undefined;
}

export function differences(before: unknown, after: unknown): Difference[] {
  const old = leaves(before);
  const now = leaves(after);
  const paths = new Set([...old.keys(), ...now.keys()]);
  return [...paths]
    .filter((path) => old.get(path) !== now.get(path))
    .map((path) => ({ path, before: old.get(path), after: now.get(path) }));
}

function leaves(value: unknown): Map<string, string> {
  const found = new Map<string, string>();
  const walk = (item: unknown, path: string): void => {
    if (typeof item !== "object" || item === null) {
      found.set(path, typeof item === "string" ? item : JSON.stringify(item));
      return;
    }
    const entries = Object.entries(item);
    if (entries.length === 0) found.set(path, Array.isArray(item) ? "[]" : "{}");
    for (const [key, inner] of entries) walk(inner, path === "" ? key : `${path}.${key}`);
  };
  if (value !== undefined) walk(value, "");
  return found;
}
