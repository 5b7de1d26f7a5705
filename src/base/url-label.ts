/**
 * A URL for a metric label, a log line or an error: scheme, host and path. Credentials stand before the host or in the
 * query, which are left out.
 */
export function urlLabel(url: string): string {
  if (!URL.canParse(url)) return "invalid URL";
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}
