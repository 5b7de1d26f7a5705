/**
 * A name from outside as one segment of a URL's path. Percent-encoding alone is not enough: it leaves `.` and `..`, which
 * lead to another path, and throws for half of a pair of code units. Such names are refused.
 */
export function pathSegment(name: string): string | undefined {
  if (name === "." || name === "..") return undefined;
  try {
    return encodeURIComponent(name);
  } catch {
    return undefined;
  }
}
