/**
 * The host names under which a listener serves a route: those of the route that the listener's own name covers.
 */

/** An empty list: any name. undefined: they have none in common, the listener does not serve the route. */
export function commonHostnames(route: readonly string[], listener: string | undefined): string[] | undefined {
  if (listener === undefined || listener === "*") return [...route];
  if (route.length === 0) return [listener];
  const common = route.flatMap((name) => (covers(listener, name) ? [name] : covers(name, listener) ? [listener] : []));
  return common.length === 0 ? undefined : [...new Set(common)];
}

/** `*.example.com` covers `a.example.com` and `*.a.example.com`, not `example.com`. */
export function covers(pattern: string, name: string): boolean {
  const [one, other] = [pattern.toLowerCase(), name.toLowerCase()];
  if (one === other || one === "*") return true;
  return one.startsWith("*.") && other.endsWith(one.slice(1)) && other.length > one.length - 1;
}
